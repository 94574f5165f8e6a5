"""What a replica tells about itself: structured logs and metrics."""
