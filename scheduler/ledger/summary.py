"""Reads the whole ledger on one page, from the sums and sizes that it keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.domain.limits import MIB
from scheduler.domain.placement import Strategy
from scheduler.domain.summary import Amount, Rates, Summary
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

RATE_SECONDS = 60
_FURTHER = "further:"
_STATES = ("confirmed", "settled", "cancelled", "expired")


class SummaryStore:
    def __init__(self, runner: Runner, domain: str) -> None:
        self._runner = runner
        self._domain = domain

    async def read(self) -> Summary:
        """The sums of a ledger that has none, or lost count of them, are counted first, in slices. read_summary.lua

        Raises Overloaded when that takes longer than this call may; the next one goes on."""
        status, reply = await self._runner.run("read_summary")
        while status == "uncounted":
            await self._runner.run("count_tallies")
            status, reply = await self._runner.run("read_summary")
        facts, replicas, statuses, sums, classes, rates = reply
        found, kept = codec.texts(facts), {name: codec.number(value) for name, value in codec.texts(sums).items()}
        now_ms = int(found["now_ms"])
        reserved = _amount(kept, "reserved")
        reserved = Amount(
            (reserved.cpu_count or 0) + int(found["straight_cpu"]),
            (reserved.memory_bytes or 0) + int(found["straight_mib"]) * MIB,
            reserved.resources,
        )
        capacity, allocated, closed = (_amount(kept, part) for part in ("capacity", "allocated", "closed"))
        oldest = found["oldest_pending_ms"]
        return Summary(
            domain=self._domain,
            strategy=Strategy(found["strategy"]),
            settings_revision=codec.number(found["revision"]),
            epoch=found["epoch"],
            rebuilding=found["rebuilding"] == "1",
            clock_skew_ms=int(found["clock_skew_ms"]),
            now_ms=now_ms,
            replicas=tuple(sorted(map(codec.text, replicas))),
            nodes={status: int(count) for status, count in sorted(codec.texts(statuses).items()) if int(count) > 0},
            capacity=capacity,
            allocated=allocated,
            reserved=reserved,
            free=_left(capacity, allocated, reserved, closed),
            largest_free=_by_class(classes),
            reservations=_by_state(kept, int(found["open"])),
            oldest_pending_ms=int(oldest) if oldest else None,
            rates=_rates({**codec.texts(rates), "placed": found["placed"]}, now_ms // 1000),
        )


def _amount(kept: Mapping[str, int], part: str) -> Amount:
    further = f"{part}_{_FURTHER}"
    return Amount(
        kept.get(f"{part}_cpu", 0),
        kept.get(f"{part}_memory", 0),
        {name: kept.get(further + name, 0) for name in _resources(kept)},
    )


def _resources(kept: Mapping[str, int]) -> list[str]:
    """The resources that some node has, or that something is made of."""
    told = (field.partition(f"_{_FURTHER}")[2] for field, value in kept.items() if value)
    return sorted({name for name in told if name})


def _left(whole: Amount, *parts: Amount) -> Amount:
    return Amount(
        (whole.cpu_count or 0) - sum(part.cpu_count or 0 for part in parts),
        (whole.memory_bytes or 0) - sum(part.memory_bytes or 0 for part in parts),
        {name: total - sum(part.resources[name] for part in parts) for name, total in whole.resources.items()},
    )


def _by_state(kept: Mapping[str, int], open_count: int) -> dict[str, int]:
    counts = {state: kept.get(f"state_{state}", 0) for state in _STATES}
    counts = {"pending": open_count - counts["confirmed"], **counts}
    return {state: count for state, count in counts.items() if count > 0}


def _by_class(flat: Sequence[Any]) -> dict[str, Amount]:
    """By capacity and labels; nodes of one size stand in a class for each state they may be in."""
    found: dict[str, Amount] = {}
    words = iter(map(codec.text, flat))
    for name, cpus, memory in zip(words, words, words, strict=True):
        shown, before = class_name(name), found.get(class_name(name), Amount(None, None))
        found[shown] = Amount(_most(before.cpu_count, int(cpus)), _most(before.memory_bytes, int(memory)))
    return dict(sorted(found.items()))


def _most(known: int | None, more: int) -> int | None:
    return known if more < 0 else max(known or 0, more)


def class_name(name: str) -> str:
    """A class of the index (lua/include/places) in words: `64 CPUs, 128 GiB`, and its labels where it has some."""
    _, labels, cpus, memory, *_ = name.split(",")
    shown = f"{cpus if int(cpus) >= 0 else '?'} CPUs, {f'{int(memory) / 2**30:g}' if int(memory) >= 0 else '?'} GiB"
    return shown if labels == "-" else f"{shown}, {labels.replace(';', ', ')}"


def _rates(kept: Mapping[str, str], second: int) -> Rates:
    """Placements and refusals per second over the last sixty seconds, the present one included."""
    placed, refused = 0, Counter[str]()
    for field, text in kept.items():
        at, *counts = text.split(",")
        if not at or not second - RATE_SECONDS < int(at) <= second:
            continue
        if field.startswith("p"):
            placed += int(counts[0])
        else:
            for count in counts:
                reason, _, number = count.partition("=")
                refused[reason] += int(number)
    by_reason = {reason: count / RATE_SECONDS for reason, count in sorted(refused.items())}
    return Rates(placed / RATE_SECONDS, by_reason)
