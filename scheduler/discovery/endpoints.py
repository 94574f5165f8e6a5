"""From EndpointSlices and pods to the two lists discovery knows: who may be chosen, and who only drains.

An endpoint is a node when it serves (being ready or not says nothing about running sandboxes), is
a named target, and has an address that is an IP. A terminating one drains. Pods that match the
ignore selector are no nodes; those that match the no-schedule selector drain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
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
) -> DiscoveredNodes:
    """`ignored` and `no_schedule` are pod names."""
    active: dict[str, NodeAddress] = {}
    lingering: dict[str, NodeAddress] = {}
    for endpoint in _endpoints(slices, port):
        node_id = (endpoint.get("targetRef") or {}).get("name") or ""
        address = _first_ip(endpoint.get("addresses") or ())
        conditions = endpoint.get("conditions") or {}
        if not node_id or node_id in ignored or address is None or conditions.get("serving") is not True:
            continue
        drains = conditions.get("terminating") is True or node_id in no_schedule
        # A dual-stack pod is in two slices; the first one, in our order, names its address.
        (lingering if drains else active).setdefault(node_id, NodeAddress(node_id, f"{scheme}://{address}:{port}"))
    return DiscoveredNodes(
        active=tuple(node for node_id, node in sorted(active.items()) if node_id not in lingering),
        lingering=tuple(node for _, node in sorted(lingering.items())),
    )


def _endpoints(slices: Iterable[KubernetesObject], port: int) -> Iterable[Mapping[str, Any]]:
    """Those of slices that list the port: IPv4 before IPv6, then by the slice's name, so that the order is one."""
    for piece in sorted(slices, key=lambda piece: (piece.get("addressType", ""), piece["metadata"]["name"])):
        if any(listed.get("port") == port for listed in piece.get("ports") or ()):
            yield from piece.get("endpoints") or ()


def _first_ip(addresses: Iterable[str]) -> str | None:
    """As it stands in a URL: IPv6 in brackets."""
    for text in addresses:
        try:
            address = ip_address(text)
        except ValueError:
            continue
        return f"[{address}]" if isinstance(address, IPv6Address) else str(address)
    return None
