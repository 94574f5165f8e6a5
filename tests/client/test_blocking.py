"""What only the blocking client has: threads that go on where a task would."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from agentenv_scheduler_client import (
    ColdSandbox,
    Conflict,
    DeadlineExceeded,
    NodeAddress,
    NodeRefused,
    NoNodes,
    OutcomeUnknown,
    Placement,
)
from agentenv_scheduler_client._sync.waiting import Waiting
from agentenv_scheduler_client.deadline import Deadline
from tests.client.fake_scheduler import AWAY, BROKEN, GARBLED, LOST, SILENT, UNSENT, FakeScheduler

HINT = ColdSandbox(cpu_count=1)


def confirm_within(seconds: float, placement: Placement) -> None:
    """As if so much of the caller's time were left."""
    placement._deadline = Deadline(seconds, time.monotonic)
    placement.confirm("s1")


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client paused between attempts, which it does not here."""
    pauses: list[float] = []
    monkeypatch.setattr(Waiting, "sleep", lambda waiting, seconds: pauses.append(seconds))
    return pauses


@pytest.mark.parametrize("fault", [LOST, UNSENT, AWAY, GARBLED, BROKEN, SILENT])
def test_a_schedule_that_is_not_answered_is_asked_again_under_the_same_key(fault: str, paused: list[float]) -> None:
    scheduler = FakeScheduler(faults={"schedule": [fault, fault]})
    with scheduler.blocking_client() as client:
        decision = client.schedule(HINT)
    assert decision.replayed == (fault in {LOST, GARBLED, BROKEN, SILENT})
    assert len({one.headers["idempotency-key"] for one in scheduler.asked}) == 1
    assert scheduler.states() == ["pending"]
    assert len(paused) == 2


def test_a_call_ends_at_its_deadline_although_the_answer_never_does() -> None:
    still_silent = threading.Event()
    scheduler = FakeScheduler(faults={"schedule": [SILENT] * 9}, waits=still_silent.wait)
    try:
        with scheduler.blocking_client(timeout_seconds=0.05, attempts=1) as client:
            with pytest.raises(DeadlineExceeded) as caught:
                client.schedule(HINT)
            assert (caught.value.answered, caught.value.unanswered) == (False, 1)
            assert not still_silent.is_set()
    finally:
        still_silent.set()


def test_a_confirm_that_outlasts_its_callers_deadline_goes_on_and_closing_waits_for_it(paused: list[float]) -> None:
    caller_left, scheduler = threading.Event(), FakeScheduler()

    def late() -> str | None:
        caller_left.wait()
        return AWAY if len(scheduler.times("confirm")) == 1 else None

    scheduler.faults["confirm"] = late
    with scheduler.blocking_client() as client:
        with client.place(HINT) as placement:
            with pytest.raises(OutcomeUnknown) as caught:
                confirm_within(0.05, placement)
            assert (caught.value.node.node_id, caught.value.sandbox_id) == ("node-a", "s1")
            assert scheduler.states() == ["pending"]
        caller_left.set()
    assert scheduler.states() == ["confirmed"]
    assert "cancel" not in scheduler.calls()


def test_closing_gives_up_what_does_not_end_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    ended, scheduler = threading.Event(), FakeScheduler()
    scheduler.faults["confirm"] = lambda: AWAY
    finished = Waiting._ended

    def tell(waiting: Waiting, job: object) -> None:
        finished(waiting, job)  # type: ignore[arg-type]  # a job
        ended.set()

    with pytest.MonkeyPatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Waiting, "_ended", tell)
        with (
            scheduler.blocking_client(timeout_seconds=0.05) as client,
            client.with_patience(60).place(HINT) as placement,
            pytest.raises(OutcomeUnknown),
        ):
            confirm_within(0.05, placement)
        assert ended.wait(60)
    assert "given up because the client closed" in caplog.text
    assert scheduler.states() == ["pending"]


def test_an_interrupted_schedule_takes_its_key_back() -> None:
    scheduler = FakeScheduler()

    def interrupt() -> str:
        raise KeyboardInterrupt

    scheduler.faults["schedule"] = interrupt
    with scheduler.blocking_client() as client, pytest.raises(KeyboardInterrupt):
        client.create(HINT, lambda node: "s1")
    assert scheduler.calls() == ["schedule", "cancel_by_key"]


def test_an_interrupted_create_keeps_the_capacity() -> None:
    scheduler = FakeScheduler()

    def start(node: NodeAddress) -> str:
        raise KeyboardInterrupt

    with scheduler.blocking_client() as client, pytest.raises(KeyboardInterrupt) as caught:
        client.create(HINT, start)
    assert caught.value.__notes__ == ["reservation r1 on node node-a is held until its deadline"]
    assert scheduler.states() == ["pending"]


def test_refusals_try_the_next_node_in_the_callers_own_thread() -> None:
    scheduler, threads = FakeScheduler(), list[threading.Thread]()

    def start(node: NodeAddress) -> str:
        threads.append(threading.current_thread())
        raise NodeRefused("full")

    with scheduler.blocking_client() as client, pytest.raises(NoNodes):
        client.create(HINT, start)
    assert threads == [threading.current_thread()] * 2
    assert scheduler.states() == ["cancelled", "cancelled"]


@pytest.mark.parametrize("stops", [True, False])
def test_a_definite_conflict_stops_the_sandbox(stops: bool) -> None:
    scheduler, stopped = FakeScheduler(), list[str]()

    def stop(node: NodeAddress, sandbox_id: str) -> None:
        stopped.append(sandbox_id)
        if not stops:
            raise ConnectionError("the node is gone")

    with scheduler.blocking_client() as client, pytest.raises(Conflict) as caught:
        client.create(HINT, lambda node: "other", sandbox_id="mine", stop=stop)
    assert (stopped, caught.value.stopped) == (["other"], stops)
    assert scheduler.states() == ["cancelled" if stops else "pending"]


def test_what_the_caller_traces_goes_along_into_the_threads() -> None:
    import contextvars

    tracing: contextvars.ContextVar[str] = contextvars.ContextVar("tracing", default="lost")
    seen: list[str] = []
    scheduler = FakeScheduler()
    note: Callable[[], str | None] = lambda: seen.append(tracing.get())  # noqa: E731 - a fault that is none
    scheduler.faults |= {"schedule": note, "confirm": note}
    tracing.set("span-1")
    with scheduler.blocking_client() as client:
        client.create(HINT, lambda node: "s1")
    assert seen == ["span-1", "span-1"]
