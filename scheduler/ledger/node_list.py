"""A node as discovery lists it, in the form that set_nodes.lua takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from scheduler.domain import labels
from scheduler.domain.node import DiscoveryState

LABEL_SETS_MAX = 64
TOO_MANY_LABEL_SETS = f"nodes have {LABEL_SETS_MAX} different sets of labels, and there can be no more"


class LabelSource(StrEnum):
    """Who tells a node's labels, besides its configuration and its reports."""

    API = "api"
    KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class ListedNode:
    """`labels` None: those told before stay."""

    endpoint: str
    state: DiscoveryState
    labels: Mapping[str, str] | None = None

    def is_as(self, found: tuple[str, str, str] | None) -> bool:
        """Whether the ledger lists it so already: endpoint, state, and labels of the same source."""
        if found is None or found[:2] != (self.endpoint, self.state.value):
            return False
        return self.labels is None or labels.written(self.labels) == found[2]


def entry(node_id: str, node: ListedNode) -> tuple[str, str, str, str]:
    told = "-" if node.labels is None else labels.written(node.labels)
    return node_id, node.endpoint, node.state.value, told
