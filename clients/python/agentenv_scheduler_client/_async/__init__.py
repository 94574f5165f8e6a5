"""The client for asyncio, from which the blocking one in `_sync` is written by `generate_sync.py`."""
