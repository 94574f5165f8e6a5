"""The text that Prometheus scrapes, in the spelling of AgentENV's own processes.

AgentENV's metrics come from Go's client. Two differences of Python's are evened out, because both are part of a
series' identity: `le="1"` instead of `le="1.0"`, and no `_created` series beside every counter.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

PAGE_CONTENT_TYPE = CONTENT_TYPE_LATEST


def page_of(registry: CollectorRegistry) -> bytes:
    """Everything in the registry, from memory."""
    return generate_latest(_AsGoSpells(registry))


class _AsGoSpells(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            spelled = Metric(family.name, family.documentation, family.type, family.unit)
            spelled.samples = [_spelled(sample) for sample in family.samples if not sample.name.endswith("_created")]
            yield spelled


def _spelled(sample: Sample) -> Sample:
    bound = sample.labels.get("le")
    if bound is None or not bound.endswith(".0"):
        return sample
    return sample._replace(labels={**sample.labels, "le": bound.removesuffix(".0")})
