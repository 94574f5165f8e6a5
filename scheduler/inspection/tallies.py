"""Counts the sums that the ledger keeps over all nodes and reservations (lua/include/tallies) anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from scheduler.domain.limits import MIB
from scheduler.domain.resources import ResourceLoad
from scheduler.inspection.finding import Finding
from scheduler.inspection.walks import SLICE, in_slices
from scheduler.ledger import codec
from scheduler.ledger.ledger import Ledger

COUNTED_AT_MOST = 3


async def recount_tallies(ledger: Ledger) -> list[Finding]:
    """What the sums say otherwise than rows and reservations do. Nothing when they change while these are read, or when
    they are to be counted anyway before somebody reads them."""
    for _ in range(COUNTED_AT_MOST):
        kept = await _kept(ledger)
        if "counted" not in kept:
            return []
        counted = await _counted(ledger)
        if kept == await _kept(ledger):
            names = sorted({*counted, *kept} - {"counted", "oldest_sequence"})
            return [
                Finding("tallies", "sum", f"{name} is {kept.get(name, 0)}, counted: {counted[name]}")
                for name in names
                if kept.get(name, 0) != counted[name]
            ]
    return []


async def _kept(ledger: Ledger) -> dict[str, int]:
    """The sums, with what placements have reserved since the last sweep."""
    keys = ledger.keys
    flat, straight = await ledger.client.pipeline(
        [("HGETALL", keys.tallies), ("HMGET", keys.rotations, "straight_cpu", "straight_mib")]
    )
    found = Counter({name: int(value) for name, value in codec.texts(flat).items()})
    found["reserved_cpu"] += codec.number(straight[0])
    found["reserved_memory"] += codec.number(straight[1]) * MIB
    return dict(found)


async def _counted(ledger: Ledger) -> Counter[str]:
    found: Counter[str] = Counter()
    keys, client = ledger.keys, ledger.client
    cursor: bytes | str = "0"
    rows: dict[str, str] = {}
    while True:
        cursor, flat = await client.command("HSCAN", keys.loads, cursor, "COUNT", SLICE)
        rows |= codec.texts(flat)
        if codec.text(cursor) == "0":
            break
    for text in rows.values():
        if (row := codec.row(text)) is not None:
            _add_row(found, *row, codec.row_resources(text))
    reservation_ids = await client.command("ZRANGE", keys.reservations, 0, -1)
    for some in in_slices(reservation_ids, SLICE):
        asked = [("HGET", keys.reservation(codec.text(reservation_id)), "state") for reservation_id in some]
        for state in await client.pipeline(asked):
            if state is not None and state != b"pending":
                found[f"state_{codec.text(state)}"] += 1
    return found


def _add_row(found: Counter[str], pool: str, numbers: Sequence[int], further: Mapping[str, ResourceLoad]) -> None:
    if pool not in ("r", "c", "o"):
        return
    cpu_most, memory_most, count_most = numbers[10:13] if len(numbers) > 10 else (-1, -1, -1)
    closed = pool == "o" or 0 <= count_most <= numbers[4] + numbers[5] + numbers[9]
    _add(found, "cpu", (numbers[0], numbers[2], numbers[7], cpu_most), closed=closed)
    _add(found, "memory", (numbers[1], numbers[3], numbers[8], memory_most), closed=closed)
    for name, load in further.items():
        _add(found, f"further:{name}", (load.total, load.allocated, load.pending, -1), closed=closed)


def _add(found: Counter[str], name: str, amounts: tuple[int, int, int, int], *, closed: bool) -> None:
    capacity, load, pending, most = amounts
    if capacity < 0:
        return
    left = capacity - load - pending
    free = 0 if closed else max(0, left if most < 0 else min(left, most - load - pending))
    found[f"capacity_{name}"] += capacity
    found[f"allocated_{name}"] += load
    found[f"reserved_{name}"] += pending
    found[f"closed_{name}"] += left - free
