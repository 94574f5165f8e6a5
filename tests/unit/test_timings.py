"""Our histograms show what the library's own would."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram

from scheduler.observability.page import page_of
from scheduler.observability.timings import TimingCollector, Timings

BOUNDS = (0.005, 0.5, 1.0, 60.0)
OBSERVED = {("confirm", "done"): (0.0, 0.005, 0.0051, 0.7), ("renew", "failed"): (1.0, 60.0, 61.0)}


def test_a_page_is_the_same_with_the_librarys_histograms() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    timings = Timings(BOUNDS)
    ours.register(TimingCollector("calls_seconds", "Calls", ("call", "result"), timings))
    histogram = Histogram("calls_seconds", "Calls", ("call", "result"), registry=theirs, buckets=BOUNDS)
    for labels, observed in OBSERVED.items():
        for seconds in observed:
            timings[labels].observe(seconds)
            histogram.labels(*labels).observe(seconds)
    assert page_of(ours) == page_of(theirs)
    assert b'le="0.005",result="done"} 2.0' in page_of(ours)
