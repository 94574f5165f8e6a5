"""One node with everything the ledger keeps about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.domain.node import Node
from scheduler.domain.reservation import Reservation
from scheduler.errors import NotFound
from scheduler.inspection.walks import in_slices
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger

RESERVATIONS_SHOWN = 1000
NODES_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Capacity:
    """Effective, after overcommit: what placing goes by. None where it is not known."""

    cpu_count: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeLook:
    """`open` are the reservations that count as pending, oldest first, at most RESERVATIONS_SHOWN of `open_count`.
    `listed`: sandboxes in the node's last roster; `awaited`: bound to the node and not in a roster yet.
    `acknowledged`: reservations that counters settled and no event has named."""

    node: Node
    capacity: Capacity
    limit_exceeded: str | None
    listed: int
    awaited: int
    acknowledged: int
    open_count: int
    open: tuple[Reservation, ...]


async def look_at_node(ledger: Ledger, node_id: str) -> NodeLook:
    """Raises NotFound when discovery does not list it."""
    node = await ledger.nodes.get(node_id)
    keys = ledger.keys
    row, over_limit, listed, awaited, acknowledged, open_count, ids = await ledger.client.pipeline(
        [
            ("HGET", keys.loads, node_id),
            ("HGET", keys.node(node_id), "over_limit"),
            ("SCARD", keys.node_sandboxes(node_id)),
            ("ZCARD", keys.node_assigned(node_id)),
            ("ZCARD", keys.node_acknowledged(node_id)),
            ("ZCARD", keys.node_reservations(node_id)),
            ("ZRANGE", keys.node_reservations(node_id), 0, RESERVATIONS_SHOWN - 1),
        ]
    )
    return NodeLook(
        node,
        _capacity(row),
        codec.text(over_limit) or None,
        int(listed),
        int(awaited),
        int(acknowledged),
        int(open_count),
        await _reservations(ledger, [codec.text(reservation_id) for reservation_id in ids]),
    )


async def capacities(ledger: Ledger, node_ids: Sequence[str]) -> dict[str, Capacity]:
    """The capacities of each of these nodes."""
    found: dict[str, Capacity] = {}
    for some in in_slices(node_ids, NODES_AT_ONCE):
        rows = await ledger.client.command("HMGET", ledger.keys.loads, *some)
        found |= {node_id: _capacity(row) for node_id, row in zip(some, rows, strict=True)}
    return found


def _capacity(row: bytes | None) -> Capacity:
    """From a node's row, which starts with its pool and what it holds of each."""
    if row is None:
        return Capacity()
    _, cpu, memory, *_ = codec.text(row).split(",")
    return Capacity(_known(cpu), _known(memory))


def _known(capacity: str) -> int | None:
    return None if capacity == "-1" else int(capacity)


async def _reservations(ledger: Ledger, ids: list[str]) -> tuple[Reservation, ...]:
    found = []
    for reservation_id in ids:
        try:
            found.append(await ledger.reservations.get(reservation_id))
        except NotFound:
            continue  # it ended meanwhile
    return tuple(found)
