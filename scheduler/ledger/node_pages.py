"""Reads pages of nodes. A page in id order is one range; for any other order a line of every node is read first (its
row in `loads`), and then the nodes of the page in full."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

from scheduler.domain.node import Node, NodeQuery
from scheduler.errors import InvalidRequest
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

ROWS_A_STEP = 500
NODES_A_STEP = 100

Place = tuple[float | None, str]
"""The value that a node is sorted by (None: not known, which comes last), and its id."""


def _pressure(row: Sequence[int]) -> float | None:
    """The larger of both dimensions, of what is in use and reserved; None where no capacity is known."""
    cpu, memory, cpu_load, memory_load, _, _, _, pending_cpu, pending_memory, *_ = row
    loads = ((cpu_load + pending_cpu, cpu), (memory_load + pending_memory, memory))
    return max((load / capacity for load, capacity in loads if capacity > 0), default=None)


def _known(capacity: int) -> int | None:
    return None if capacity < 0 else capacity


_VALUES: dict[str, Callable[[Sequence[int]], float | None]] = {
    "node_id": lambda row: 0,
    "pressure": _pressure,
    "pending": lambda row: row[9],
    "sandbox_count": lambda row: row[5],
    "cpu_count": lambda row: _known(row[0]),
    "memory_bytes": lambda row: _known(row[1]),
}
SORTS = (*_VALUES, "last_seen_ms")
"""What nodes can be sorted by. Capacities are the effective ones; the fields of a row are in lua/include/row_text."""


async def read_page(runner: Runner, query: NodeQuery, limit: int, cursor: str) -> tuple[tuple[Node, ...], str | None]:
    """Reads what `NodeStore.page` promises."""
    if query.sort not in ("", "node_id"):
        return await _sorted_page(runner, query, limit, cursor)
    found: list[Node] = []
    after: str | None = cursor
    while after is not None and len(found) < limit:
        nodes, after = await read_nodes(runner, query, after, _step(query, limit - len(found)))
        found += nodes
    if len(found) > limit:
        return tuple(found[:limit]), found[limit - 1].node_id
    return tuple(found), after


async def _sorted_page(
    runner: Runner, query: NodeQuery, limit: int, cursor: str
) -> tuple[tuple[Node, ...], str | None]:
    left = nodes_after(await read_order(runner, query.sort), query.sort, cursor)
    found: list[Node] = []
    looked = 0
    while looked < len(left) and len(found) < limit:
        step = left[looked : looked + _step(query, limit - len(found))]
        found += (await read_nodes(runner, query, "", len(step), [node_id for _, node_id in step]))[0]
        looked += len(step)
    if len(found) > limit:
        looked = 1 + [node_id for _, node_id in left].index(found[limit - 1].node_id)
    return tuple(found[:limit]), None if looked == len(left) else cursor_of(left[looked - 1])


def _step(query: NodeQuery, wanted: int) -> int:
    """How many nodes to read next: with a filter more than are still wanted, because some will not match."""
    filtered = query.status is not None or query.cluster_id or query.labels
    return NODES_A_STEP if filtered else min(NODES_A_STEP, wanted)


async def read_nodes(
    runner: Runner, query: NodeQuery, after: str, limit: int, node_ids: Sequence[str] = ()
) -> tuple[list[Node], str | None]:
    """The matching ones of the next `limit` nodes, or of `node_ids`, and where to go on (None: that was all)."""
    status = "" if query.status is None else query.status.value
    found: list[Node] = []
    while True:
        _, (last, *entries) = await runner.run("read_nodes", after, limit, status, query.detail.value, *node_ids)
        found += (node for node in map(codec.node, entries) if _is_wanted(node, query))
        # All of `node_ids` are read in one call, unless too many reservations are due on them.
        if not node_ids or not last:
            return found, codec.text(last) or None
        node_ids = node_ids[node_ids.index(codec.text(last)) + 1 :]


def _is_wanted(node: Node, query: NodeQuery) -> bool:
    if query.cluster_id and node.cluster_id != query.cluster_id:
        return False
    return all(node.labels.get(name) == value for name, value in query.labels.items())


async def read_order(runner: Runner, sort: str) -> list[Place]:
    """Every listed node in this order; `-` before the name reverses it. Unknown values come last, equal ones by id."""
    name, rows = sort.removeprefix("-"), await _rows(runner)
    if name == "last_seen_ms":
        seen = await _sightings(runner, list(rows))
        places: list[Place] = [(seen.get(node_id), node_id) for node_id in rows]
    else:
        value = _VALUES[name]
        found = {node_id: codec.row(text) for node_id, text in rows.items()}
        places = [(None if row is None else value(row[1]), node_id) for node_id, row in found.items()]
    places.sort(key=lambda place: place[1].encode(), reverse=sort == "-node_id")
    factor = -1 if sort.startswith("-") else 1
    return sorted(places, key=lambda place: (place[0] is None, factor * (place[0] or 0)))


def cursor_of(place: Place) -> str:
    return json.dumps(place, separators=(",", ":"), ensure_ascii=False)


def nodes_after(order: Sequence[Place], sort: str, cursor: str) -> Sequence[Place]:
    """The nodes behind the place that a cursor names, whoever stands there now. Raises InvalidRequest."""
    if not cursor:
        return order
    try:
        value, node_id = json.loads(cursor)
        last = (value is None, 0 if value is None else float(value)), str(node_id).encode()
        if not math.isfinite(last[0][1]):
            raise ValueError(cursor)
    except (ValueError, TypeError, OverflowError):
        raise InvalidRequest.field("cursor", cursor, "the cursor of an earlier page") from None
    factor = -1 if sort.startswith("-") else 1
    descending = sort == "-node_id"

    def is_behind(place: Place) -> bool:
        one, other = (place[0] is None, factor * (place[0] or 0)), (last[0][0], factor * last[0][1])
        if one != other:
            return one > other
        return (place[1].encode() < last[1]) if descending else (place[1].encode() > last[1])

    return [place for place in order if is_behind(place)]


async def _sightings(runner: Runner, node_ids: Sequence[str]) -> dict[str, float]:
    """When the last report of each arrived; a node stands in one of two sets."""
    found: dict[str, float] = {}
    for first in range(0, len(node_ids), ROWS_A_STEP):
        step = node_ids[first : first + ROWS_A_STEP]
        keys = (runner.keys.seen, runner.keys.silent)
        for scores in await runner.client.pipeline([("ZMSCORE", key, *step) for key in keys]):
            found |= {node_id: float(at) for node_id, at in zip(step, scores, strict=True) if at is not None}
    return found


async def _rows(runner: Runner) -> dict[str, str]:
    """The row of every listed node, a few at a time."""
    found: dict[str, str] = {}
    cursor: bytes | str = "0"
    while True:
        cursor, flat = await runner.client.command("HSCAN", runner.keys.loads, cursor, "COUNT", ROWS_A_STEP)
        found |= codec.texts(flat)
        if codec.text(cursor) == "0":
            return found
