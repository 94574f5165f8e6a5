"""Calls are logged up to a bound, and what was left out is said."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.domain.node import DiscoveryState, Heartbeat
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import NodeNotListed
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.settings import SettingsOutcome
from scheduler.observability.call_log import CallLog
from scheduler.observability.logging import get_logger
from scheduler.service import build_services

log = get_logger("scheduler.test")


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def levels(lines: list[Any]) -> list[str]:
    return [line["log_level"] for line in lines]


def test_a_second_has_so_many_lines_of_each_kind_and_the_next_one_counts_the_others() -> None:
    clock = Seconds()
    calls = CallLog(2, clock)
    with capture_logs() as lines:
        for _ in range(5):
            calls.info(log, "placed")
        calls.warning(log, "refused")
        clock.now = 0.9
        calls.info(log, "placed")
        clock.now = 1.0
        for _ in range(2):
            calls.info(log, "placed", node_id="a")
    assert levels(lines) == ["info"] * 2 + ["debug"] * 3 + ["warning", "debug"] + ["info"] * 2
    assert lines[-2] == {"event": "placed", "node_id": "a", "left_out": 4, "log_level": "info"}
    assert "left_out" not in lines[-1]


def test_none_a_second_is_none_at_info() -> None:
    clock = Seconds()
    calls = CallLog(0, clock)
    with capture_logs() as lines:
        for second in range(3):
            clock.now = second
            calls.info(log, "placed")
    assert levels(lines) == ["debug"] * 3


@pytest.mark.parametrize(("per_second", "level"), [(20, "info"), (0, "debug")])
async def test_a_placement_and_its_confirm_are_seen(embedded_ledger: Ledger, per_second: int, level: str) -> None:
    services = build_services(embedded_ledger, calls_logged_per_second=per_second)
    await services.nodes.set("a", "http://a:1", DiscoveryState.ACTIVE)
    with capture_logs() as lines:
        decision = await services.placement.schedule(ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 512)))
        assert decision.reservation is not None
        await services.reservations.confirm(decision.reservation.reservation_id, "s1")
    assert [(line["event"], line["log_level"]) for line in lines] == [("placed", level), ("confirm", level)]
    assert lines[0]["reservation_id"] == decision.reservation.reservation_id


async def test_nodes_that_are_not_listed_do_not_fill_the_log(embedded_ledger: Ledger) -> None:
    services = build_services(embedded_ledger, calls_logged_per_second=0)
    with capture_logs() as lines:
        for number in range(30):
            with pytest.raises(NodeNotListed):
                await services.nodes.heartbeat(Heartbeat(f"stranger-{number}", "i"))
    assert levels(lines) == ["debug"] * 30


async def test_settings_that_differ_are_logged_once_for_every_change(embedded_ledger: Ledger) -> None:
    services = build_services(embedded_ledger)
    conflict = SettingsOutcome("conflict", LedgerSettings(revision=3), "e1", differing=("strategy",))
    with capture_logs() as lines:
        for _ in range(5):
            services.readiness.note_settings(conflict)
        services.readiness.note_settings(
            SettingsOutcome("conflict", LedgerSettings(revision=3), "e1", differing=("strategy", "report_ttl"))
        )
        for _ in range(2):
            services.readiness.note_settings(SettingsOutcome("same", LedgerSettings(revision=3), "e1"))
        services.readiness.note_settings(conflict)
    assert [line["event"] for line in lines] == [
        "settings differ from the ledger's",
        "settings differ from the ledger's",
        "settings are the ledger's again",
        "settings differ from the ledger's",
    ]
