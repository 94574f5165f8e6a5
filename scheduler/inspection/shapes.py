"""The ranking indexes: how large, how far behind the journal, used when."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.store import codec
from scheduler.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class ShapeLook:
    """`lag`: entries of the journal the shape has yet to follow; it does when it is next used. `outrun`: the journal
    was trimmed beyond it, so it will be built anew. `built_to`: while building, the last node id it holds."""

    name: str
    entries: int
    lag: int
    last_use_ms: int
    complete: bool
    outrun: bool = False
    built_to: str | None = None


async def look_at_shapes(ledger: Ledger) -> tuple[ShapeLook, ...]:
    """Every shape in use, the most recently used first."""
    keys, client = ledger.keys, ledger.client
    states, base, length = await client.pipeline(
        [("HGETALL", keys.shapes), ("HGET", keys.rotations, "journal_base"), ("LLEN", keys.journal)]
    )
    known = codec.texts(states)
    sizes = await client.pipeline([("ZCARD", keys.shape(name)) for name in known]) if known else []
    first = codec.number(base)
    shapes = [
        _shape(name, state, int(size), first, first + int(length))
        for (name, state), size in zip(known.items(), sizes, strict=True)
    ]
    return tuple(sorted(shapes, key=lambda shape: (-shape.last_use_ms, shape.name)))


def _shape(name: str, state: str, entries: int, journal_first: int, journal_end: int) -> ShapeLook:
    cursor, last_use_ms, stage = state.split(",", 2)
    return ShapeLook(
        name,
        entries,
        max(0, journal_end - int(cursor)),
        int(last_use_ms),
        complete=stage == "c",
        outrun=int(cursor) < journal_first,
        built_to=stage[1:] if stage.startswith("b") else None,
    )
