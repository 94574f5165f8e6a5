"""Derives the active and the draining nodes from EndpointSlices and pods.

An endpoint is a node when it serves (readiness says nothing about running sandboxes), has a named target, and an IP
address. A terminating one drains. Pods that match the ignore selector are not nodes; those that match the
no-schedule selector drain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any

from scheduler.domain.node import NodeAddress

KubernetesObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DiscoveredNodes:
    """Both in id order; no id is in both."""

    active: tuple[NodeAddress, ...] = ()
    lingering: tuple[NodeAddress, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.active and not self.lingering


def discover(
    slices: Iterable[KubernetesObject],
    *,
    port: int,
    scheme: str,
    ignored: Collection[str] = (),
    no_schedule: Collection[str] = (),
    labels_of: Callable[[str, str | None], Mapping[str, str] | None] = lambda name, zone: None,
) -> DiscoveredNodes:
    """`ignored` and `no_schedule` are pod names; `labels_of` a pod's name and zone are the labels of its node."""
    active: dict[str, NodeAddress] = {}
    lingering: dict[str, NodeAddress] = {}
    for endpoint in _endpoints(slices, port):
        node_id = (endpoint.get("targetRef") or {}).get("name") or ""
        address = _first_ip(endpoint.get("addresses") or ())
        conditions = endpoint.get("conditions") or {}
        if not node_id or node_id in ignored or address is None or conditions.get("serving") is not True:
            continue
        drains = conditions.get("terminating") is True or node_id in no_schedule
        # A dual-stack pod is in two slices; the first one, in our order, gives its address.
        node = NodeAddress(node_id, f"{scheme}://{address}:{port}", labels_of(node_id, endpoint.get("zone")))
        (lingering if drains else active).setdefault(node_id, node)
    return DiscoveredNodes(
        active=tuple(node for node_id, node in sorted(active.items()) if node_id not in lingering),
        lingering=tuple(node for _, node in sorted(lingering.items())),
    )


def _endpoints(slices: Iterable[KubernetesObject], port: int) -> Iterable[Mapping[str, Any]]:
    """The endpoints of slices that list the port: IPv4 before IPv6, then by the slice's name, so that the order is
    stable."""
    for piece in sorted(slices, key=lambda piece: (piece.get("addressType", ""), piece["metadata"]["name"])):
        if any(listed.get("port") == port for listed in piece.get("ports") or ()):
            yield from piece.get("endpoints") or ()


def _first_ip(addresses: Iterable[str]) -> str | None:
    """In the form of a URL: IPv6 in brackets."""
    for text in addresses:
        try:
            address = ip_address(text)
        except ValueError:
            continue
        return f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    return None
