"""`--watch`, and waiting until a node is empty, on clocks that are handed in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from scheduler.errors import Conflict, StoreUnavailable
from scheduler.operating.cli import display
from scheduler.operating.cli.display import Display, View
from scheduler.operating.draining import Patience, wait_until_empty
from scheduler.operating.listing import Column, Listing
from scheduler.operating.source import Row, Source


def node(running: int, generation: int, **more: Any) -> Row:
    snapshot = {"sandbox_count": running, "sandbox_starting_count": 0, "paused_sandbox_count": more.pop("paused", 0)}
    found = {"node_id": "a", "snapshot": snapshot, "pending": {"sandbox_count": more.pop("pending", 0)}}
    return {
        **found,
        "generation": generation,
        "status": "lingering",
        "discovery": "lingering",
        "last_seen_ms": 1,
    } | more


class Looks:
    """A source whose node looks so, one look after another; the last one stays. `ledger`: its settings from then on."""

    def __init__(self, *looks: Row | Exception) -> None:
        self.looks = list(looks)

    async def settings(self) -> Row:
        look = self.looks[0]
        return {"epoch": "one", "rebuilding": False} | (look.get("ledger", {}) if isinstance(look, dict) else {})

    async def node(self, node_id: str) -> Row:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look


async def wait(*looks: Row | Exception, before: int = 7) -> tuple[bool, list[str], float]:
    """Whether it was empty within ten seconds, what was said, and how long it took."""
    said: list[str] = []
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    patience = Patience(10, 2, sleep, lambda: now[0])
    done = await wait_until_empty(cast(Source, Looks(*looks)), node(3, before), patience, said.append)
    return done, said, now[0]


async def test_a_drained_node_is_empty_when_a_report_of_after_it_and_the_reservations_say_so() -> None:
    looks = [node(0, 7), node(2, 8), node(2, 9), node(0, 10, pending=1), node(0, 11, paused=1), node(0, 12)]
    assert await wait(*looks) == (
        True,
        [
            "0 running, 0 starting, 0 paused, 0 reservations pending, waiting for its next report",
            "2 running, 0 starting, 0 paused, 0 reservations pending",
            "0 running, 0 starting, 0 paused, 1 reservation pending",
            "0 running, 0 starting, 1 paused, 0 reservations pending",
        ],
        10.0,
    )
    assert (await wait(node(0, 0, last_seen_ms=None)))[0], "what never reported runs nothing that is known"


async def test_a_node_of_a_ledger_that_was_lost_is_empty_only_when_it_has_reported_since() -> None:
    unheard = {"running": 0, "generation": 0, "last_seen_ms": None}
    lost = {"ledger": {"epoch": "another"}}
    assert not (await wait(node(2, 8), node(**unheard, **lost)))[0]
    assert not (await wait(node(**unheard, ledger={"rebuilding": True})))[0]
    assert (await wait(node(2, 8), node(**unheard, **lost), node(0, 1, **lost)))[0], "generations begin anew"


async def test_a_drain_gives_up_at_its_deadline_and_goes_on_while_nobody_answers() -> None:
    done, said, took = await wait(StoreUnavailable("away"), node(1, 8, status="unhealthy"))
    assert (done, took) == (False, 10.0)
    assert said == [
        "away",
        "1 running, 0 starting, 0 paused, 0 reservations pending, as last reported: the node is silent",
    ]


async def test_a_node_that_is_put_to_use_again_is_waited_for_no_longer() -> None:
    with pytest.raises(Conflict, match="in use again"):
        await wait(node(1, 8), node(1, 9, discovery="active"))


async def watch(monkeypatch: pytest.MonkeyPatch, looks: Sequence[View | Exception], **how: Any) -> None:
    remaining = list(looks)

    async def look() -> View:
        found = remaining.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def sleep(seconds: float) -> None:
        assert seconds == 5
        if not remaining:
            raise asyncio.CancelledError

    monkeypatch.setattr(display.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await Display(every_seconds=5, **how).show(look)


async def test_watching_goes_on_over_looks_that_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = [View(["one"], {}), StoreUnavailable("the ledger is away"), View(["two"], {}, "… and more")]
    await watch(monkeypatch, looks)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("one\ntwo\n", "agentenv-scheduler: the ledger is away\n… and more\n")


async def test_watching_for_programs_writes_a_line_each_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await watch(monkeypatch, [View([], {"n": 1}), View([], {"n": 2})], as_json=True)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [{"n": 1}, {"n": 2}]


def test_a_list_is_sorted_by_any_column_either_way_and_what_is_unknown_comes_last() -> None:
    listing: Listing[int | None] = Listing("none", (Column("size", lambda row, _: str(row), lambda row: row),))
    assert listing.sorted([2, None, 1], None) == [2, None, 1]
    assert listing.sorted([2, None, 1], "SIZE") == [1, 2, None]
    assert listing.sorted([2, None, 1], "-size") == [2, 1, None]
