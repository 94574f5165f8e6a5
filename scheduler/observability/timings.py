"""Histograms that cost little to observe: on the hot path the library's look through all buckets for each call."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Timing:
    """How often something took how long, for one set of labels."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last: longer than all
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.total += seconds


class Timings(dict[tuple[str, ...], Timing]):
    """By labels: `calls["confirm", "done"].observe(0.001)`. For the event loop's thread alone."""

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__()
        self.bounds = bounds

    def __missing__(self, labels: tuple[str, ...]) -> Timing:
        timing = self[labels] = Timing(self.bounds)
        return timing


class TimingCollector(Collector):
    """Shows `timings` as one histogram of the library's."""

    def __init__(self, name: str, what: str, labels: tuple[str, ...], timings: Timings) -> None:
        self._name, self._what, self._labels, self._timings = name, what, labels, timings
        self._spelled = [*(str(float(bound)) for bound in timings.bounds), "+Inf"]

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily(self._name, self._what, labels=self._labels)
        for labels, timing in list(self._timings.items()):
            buckets, below = [], 0
            for bound, count in zip(self._spelled, timing.counts, strict=True):
                below += count
                buckets.append((bound, below))
            family.add_metric(labels, buckets, timing.total)
        yield family
