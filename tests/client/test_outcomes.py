"""What becomes of a reservation when something is not known: in each phase of a create, and each way to leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from agentenv_scheduler_client import (
    AsyncSchedulerClient,
    ColdSandbox,
    Conflict,
    DeadlineExceeded,
    InvalidRequest,
    NodeAddress,
    NodeRefused,
    NoNodes,
    OutcomeUnknown,
    ReservationState,
    SchedulerError,
    Strategy,
)
from tests.client.fake_scheduler import AWAY, BROKEN, GARBLED, LOST, SILENT, UNSENT, FakeScheduler
from tests.support.virtual_time import now, virtually

HINT = ColdSandbox(cpu_count=1)
Story = Callable[[AsyncSchedulerClient], Awaitable[None]]
CANCELS = {"cancel", "cancel_by_key"}


@dataclass
class Node:
    """Where sandboxes start: after `boot_seconds`, unless it fails with `error`."""

    boot_seconds: float = 0.0
    error: BaseException | None = None
    asked: list[str] = field(default_factory=list)
    stopped: list[tuple[str, str]] = field(default_factory=list)

    async def start(self, node: NodeAddress) -> str:
        self.asked.append(node.node_id)
        await asyncio.sleep(self.boot_seconds)
        if self.error is not None:
            raise self.error
        return "s1"

    async def stop(self, node: NodeAddress, sandbox_id: str) -> None:
        self.stopped.append((node.node_id, sandbox_id))


def play(scheduler: FakeScheduler, story: Story) -> None:
    async def whole() -> None:
        async with scheduler.client() as client:
            await story(client)

    virtually(whole())


async def cancelled_after(seconds: float, work: Awaitable[object]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# The schedule


@pytest.mark.parametrize("fault", [LOST, AWAY, GARBLED, BROKEN, SILENT])
def test_a_schedule_never_answered_is_taken_back_by_its_key_and_no_node_is_asked(fault: str) -> None:
    scheduler, node = FakeScheduler(), Node()
    scheduler.during("schedule", fault, until=1e6)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(SchedulerError) as caught:
            await client.create(HINT, node.start)
        assert caught.value.answered is False

    play(scheduler, story)
    assert node.asked == []
    assert scheduler.revoked_keys == {scheduler.asked[0].headers["idempotency-key"]}
    assert "pending" not in scheduler.states()


def test_a_scheduler_that_was_never_reached_and_one_that_refused_leave_nothing_to_take_back() -> None:
    unreached, full = FakeScheduler(), FakeScheduler(nodes=())
    unreached.during("schedule", UNSENT, until=1e6)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(SchedulerError):
            await client.create(HINT, Node().start)

    play(unreached, story)
    play(full, story)
    assert set(unreached.calls()) == {"schedule"}
    assert full.calls() == ["schedule"]


def test_a_refusal_after_an_unheard_attempt_takes_the_key_back_for_that_may_still_arrive() -> None:
    scheduler = FakeScheduler(nodes=(), faults={"schedule": [AWAY]})

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(NoNodes):
            await client.create(HINT, Node().start)

    play(scheduler, story)
    assert scheduler.calls() == ["schedule", "schedule", "cancel_by_key"]


def test_a_task_cancelled_while_scheduling_takes_its_key_back() -> None:
    scheduler = FakeScheduler(faults={"schedule": [SILENT]})
    play(scheduler, lambda client: cancelled_after(0.5, client.create(HINT, Node().start)))
    assert scheduler.calls() == ["schedule", "cancel_by_key"]
    assert scheduler.states() == ["cancelled"]


def test_a_key_of_the_callers_own_is_never_taken_back_for_an_earlier_run_may_stand_behind_it() -> None:
    scheduler = FakeScheduler()

    async def story(client: AsyncSchedulerClient) -> None:
        async with client.place(HINT, idempotency_key="k") as first:
            assert first.node.node_id == "node-a"  # and here the first run died
        with pytest.raises(NodeRefused):
            async with client.place(HINT, idempotency_key="k"):
                raise NodeRefused
        scheduler.during("schedule", SILENT, until=1e6)
        await cancelled_after(0.5, client.place(HINT, idempotency_key="k").__aenter__())

    play(scheduler, story)
    assert scheduler.states() == ["pending"]
    assert not CANCELS & set(scheduler.calls())


@pytest.mark.parametrize("fault", [AWAY, SILENT])
def test_the_deadline_over_while_scheduling_ends_the_create_at_once(fault: str) -> None:
    scheduler, node = FakeScheduler(), Node()
    scheduler.during("schedule", fault, until=5)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(SchedulerError):
            await client.create(HINT, node.start, timeout_seconds=2)
        assert now() <= 2.001

    play(scheduler, story)
    assert node.asked == []
    assert scheduler.calls()[-1] == "cancel_by_key"
    assert "pending" not in scheduler.states()


# The node's create


def test_a_node_that_refused_gives_the_capacity_back_and_says_why() -> None:
    scheduler, node = FakeScheduler(), Node(error=NodeRefused("full"))

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(NoNodes):
            await client.create(HINT, node.start)

    play(scheduler, story)
    assert node.asked == ["node-a", "node-b"]
    assert scheduler.states() == ["cancelled", "cancelled"]
    told = [one.body for one in scheduler.asked if one.call == "cancel"]
    assert told == [{"reason": "full", "cause": "node_refused"}] * 2


def test_a_replica_that_knows_no_cause_is_told_without_it() -> None:
    scheduler, node = FakeScheduler(knows_cause=False), Node(error=NodeRefused())

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(NodeRefused):
            await client.create(HINT, node.start, nodes_tried_max=1)

    play(scheduler, story)
    assert scheduler.states() == ["cancelled"]


@pytest.mark.parametrize("error", [TimeoutError("read timed out"), ConnectionResetError(), ValueError("odd answer")])
def test_a_node_that_did_not_answer_keeps_its_capacity_and_the_error_names_it(error: Exception) -> None:
    scheduler, node = FakeScheduler(), Node(error=error)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.create(HINT, node.start)
        unknown = caught.value
        assert unknown.__cause__ is error
        assert (unknown.node.node_id, unknown.reservation.reservation_id, unknown.sandbox_id) == ("node-a", "r1", None)
        assert unknown.code == "outcome_unknown"

    play(scheduler, story)
    assert node.asked == ["node-a"]
    assert scheduler.states() == ["pending"]
    assert scheduler.calls() == ["schedule"]


def test_a_task_cancelled_while_the_node_creates_keeps_the_capacity() -> None:
    scheduler, node = FakeScheduler(), Node(boot_seconds=20)
    play(scheduler, lambda client: cancelled_after(5, client.create(HINT, node.start)))
    assert scheduler.calls() == ["schedule"]
    assert scheduler.states() == ["pending"]


def test_a_cancelled_task_ends_also_when_its_start_makes_a_refusal_of_it() -> None:
    scheduler = FakeScheduler()

    async def start(node: NodeAddress) -> str:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            raise NodeRefused from None
        return "s1"

    play(scheduler, lambda client: cancelled_after(5, client.create(HINT, start)))
    assert scheduler.states() == ["cancelled"]


def test_the_deadline_over_while_the_node_creates_is_an_unknown_outcome() -> None:
    scheduler, node = FakeScheduler(), Node(boot_seconds=20)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.create(HINT, node.start, timeout_seconds=8)
        assert now() == pytest.approx(8)
        assert caught.value.node is not None
        assert caught.value.node.node_id == "node-a"

    play(scheduler, story)
    assert scheduler.states() == ["pending"]


def test_the_deadline_over_while_refusals_are_told_tries_no_further_node() -> None:
    scheduler, node = FakeScheduler(), Node(boot_seconds=3, error=NodeRefused())
    scheduler.during("cancel", SILENT, until=7)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(DeadlineExceeded):
            await client.create(HINT, node.start, timeout_seconds=6)
        assert now() <= 6.001

    play(scheduler, story)
    assert node.asked == ["node-a"]
    assert scheduler.states() == ["cancelled"]  # all the same, before the client closed


@pytest.mark.parametrize("leave", ["crash", "cancelled task", "oversight"])
@pytest.mark.parametrize("looked", [False, True])
def test_a_block_left_without_a_word_is_cancelled_only_when_it_never_looked_at_its_node(
    leave: str, looked: bool
) -> None:
    scheduler = FakeScheduler()

    async def block(client: AsyncSchedulerClient) -> None:
        async with client.place(HINT) as placement:
            if looked:
                assert placement.node.node_id == "node-a"
            if leave == "crash":
                raise ZeroDivisionError
            if leave == "cancelled task":
                await asyncio.Event().wait()

    async def story(client: AsyncSchedulerClient) -> None:
        if leave == "crash":
            with pytest.raises(ZeroDivisionError) as caught:
                await block(client)
            assert getattr(caught.value, "__notes__", []) == (
                ["reservation r1 on node node-a is held until its deadline"] if looked else []
            )
        elif leave == "cancelled task":
            await cancelled_after(1, block(client))
        else:
            await block(client)

    play(scheduler, story)
    assert scheduler.states() == ["pending" if looked else "cancelled"]


def test_a_block_that_knows_says_so_itself() -> None:
    scheduler = FakeScheduler()

    async def story(client: AsyncSchedulerClient) -> None:
        async with client.place(HINT) as placement:
            assert placement.node
            await placement.cancel("the image does not exist")

    play(scheduler, story)
    assert scheduler.calls() == ["schedule", "cancel"]


# The confirm


@pytest.mark.parametrize("fault", [LOST, UNSENT, AWAY, GARBLED, BROKEN, SILENT])
@pytest.mark.parametrize("seconds", [3.0, 60.0, 110.0])
def test_a_confirm_is_asked_until_it_is_answered(fault: str, seconds: float) -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", fault, until=seconds)

    async def story(client: AsyncSchedulerClient) -> None:
        assert await client.create(HINT, Node().start) == "s1"

    play(scheduler, story)
    assert scheduler.states() == ["confirmed"]
    assert not CANCELS & set(scheduler.calls())


@pytest.mark.parametrize("fault", [LOST, UNSENT, AWAY, SILENT])
def test_a_confirm_never_answered_ends_with_the_reservation_and_the_error_names_the_sandbox(fault: str) -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", fault, until=1e6)

    async def story(client: AsyncSchedulerClient) -> None:
        node = Node()
        with pytest.raises(OutcomeUnknown) as caught:
            await client.create(HINT, node.start, stop=node.stop)
        unknown = caught.value
        assert (unknown.node.node_id, unknown.reservation.reservation_id, unknown.sandbox_id) == ("node-a", "r1", "s1")
        assert 115 < now() <= 120.001
        assert node.stopped == []

    play(scheduler, story)
    assert not CANCELS & set(scheduler.calls())
    assert max(scheduler.times("confirm")) > 100


@pytest.mark.parametrize("error", [NodeRefused(), ZeroDivisionError(), None])
def test_once_a_confirm_was_attempted_nothing_cancels_whatever_ends_the_block(error: Exception | None) -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", AWAY, until=1e6)

    async def block(client: AsyncSchedulerClient) -> None:
        async with client.place(HINT, timeout_seconds=5) as placement:
            with pytest.raises(OutcomeUnknown):
                await placement.confirm("s1")
            if error is not None:
                raise error

    async def story(client: AsyncSchedulerClient) -> None:
        if error is None:
            await block(client)
        else:
            with pytest.raises(type(error)):
                await block(client)

    play(scheduler, story)
    assert scheduler.states() == ["pending"]
    assert not CANCELS & set(scheduler.calls())


def test_a_renewed_reservation_is_confirmed_until_its_new_deadline() -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", AWAY, until=400)

    async def story(client: AsyncSchedulerClient) -> None:
        async with client.place(HINT) as placement:
            await placement.renew(600)
            await placement.confirm("s1")

    play(scheduler, story)
    assert scheduler.states() == ["confirmed"]


def test_a_sandbox_that_outlasted_its_reservation_is_told_all_the_same() -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", AWAY, until=503)

    async def story(client: AsyncSchedulerClient) -> None:
        await client.create(HINT, Node(boot_seconds=500).start)

    play(scheduler, story)
    assert scheduler.states() == ["confirmed"]


def test_a_task_cancelled_while_confirming_ends_at_once_and_the_confirm_goes_on() -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", AWAY, until=30)

    async def story(client: AsyncSchedulerClient) -> None:
        await cancelled_after(5, client.create(HINT, Node().start))
        assert now() == pytest.approx(5)
        await asyncio.sleep(40)

    play(scheduler, story)
    assert scheduler.states() == ["confirmed"]
    assert not CANCELS & set(scheduler.calls())


def test_the_deadline_over_while_confirming_is_told_and_the_confirm_goes_on() -> None:
    scheduler = FakeScheduler()
    scheduler.during("confirm", SILENT, until=30)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(OutcomeUnknown) as caught:
            await client.create(HINT, Node().start, timeout_seconds=7)
        assert now() == pytest.approx(7)
        assert caught.value.sandbox_id == "s1"
        await asyncio.sleep(40)

    play(scheduler, story)
    assert scheduler.states() == ["confirmed"]
    assert not CANCELS & set(scheduler.calls())


def test_closing_waits_for_a_confirm_under_way_and_for_no_longer_than_one_call() -> None:
    for until, state in ((6.0, "confirmed"), (60.0, "pending")):
        scheduler = FakeScheduler()
        scheduler.during("confirm", AWAY, until=until)

        async def story(scheduler: FakeScheduler = scheduler) -> None:
            async with scheduler.client(timeout_seconds=10) as client:
                await cancelled_after(1, client.create(HINT, Node().start))
            assert now() <= 11.001

        virtually(story())
        assert scheduler.states() == [state]


def test_a_definite_conflict_stops_the_sandbox_and_is_raised_with_its_ids() -> None:
    scheduler, node = FakeScheduler(), Node()

    async def start(address: NodeAddress) -> str:
        scheduler.reservations["r1"]["state"] = "cancelled"  # by somebody else, meanwhile
        return await node.start(address)

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(Conflict) as caught:
            await client.create(HINT, start, stop=node.stop)
        error = caught.value
        assert error.node is not None
        assert (error.node.node_id, error.sandbox_id, error.stopped) == ("node-a", "s1", True)
        assert error.reservation is not None
        assert error.reservation.state is ReservationState.CANCELLED

    play(scheduler, story)
    assert node.stopped == [("node-a", "s1")]


def test_a_conflict_on_a_pending_reservation_frees_it_once_the_sandbox_is_stopped_and_only_then() -> None:
    async def create(scheduler: FakeScheduler, node: Node, failing: bool) -> None:
        async def stop(address: NodeAddress, sandbox_id: str) -> None:
            if failing:
                raise ConnectionError("the node is gone")
            await node.stop(address, sandbox_id)

        async with scheduler.client() as client:
            # The node names it otherwise than the caller did.
            with pytest.raises(Conflict) as caught:
                await client.create(HINT, node.start, stop=stop, sandbox_id="mine")
            assert caught.value.stopped is not failing

    for failing, state in ((False, "cancelled"), (True, "pending")):
        scheduler = FakeScheduler()
        virtually(create(scheduler, Node(), failing))
        assert scheduler.asked[0].body["sandbox_id"] == "mine"
        assert scheduler.states() == [state]


def test_a_conflict_without_stop_cancels_nothing() -> None:
    scheduler = FakeScheduler()

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(Conflict):
            await client.create(HINT, Node().start, sandbox_id="mine")

    play(scheduler, story)
    assert scheduler.states() == ["pending"]


def test_the_sandbox_is_stopped_also_when_the_conflict_comes_after_its_caller_has_left() -> None:
    scheduler, node = FakeScheduler(), Node()
    scheduler.during("confirm", AWAY, until=10)

    async def story(client: AsyncSchedulerClient) -> None:
        await cancelled_after(5, client.create(HINT, node.start, stop=node.stop))
        scheduler.reservations["r1"]["state"] = "cancelled"
        await asyncio.sleep(20)

    play(scheduler, story)
    assert node.stopped == [("node-a", "s1")]


def test_an_attempted_confirm_that_was_refused_as_invalid_cancels_nothing() -> None:
    scheduler = FakeScheduler()

    async def story(client: AsyncSchedulerClient) -> None:
        with pytest.raises(InvalidRequest) as caught:
            async with client.place(HINT) as placement:
                await placement.confirm("")
        assert caught.value.node is not None
        assert caught.value.node.node_id == "node-a"

    play(scheduler, story)
    assert scheduler.states() == ["pending"]


# A scheduler that is newer than its caller


def test_names_that_only_a_newer_scheduler_knows_change_nothing_for_a_caller() -> None:
    scheduler, node = FakeScheduler(strategy="by_price", confirmed_state="confirmed_twice"), Node()

    async def story(client: AsyncSchedulerClient) -> None:
        assert await client.create(HINT, node.start) == "s1"
        decision = await client.schedule(HINT)
        assert (decision.strategy, decision.strategy.value) == ("by_price", "by_price")
        assert decision.strategy not in tuple(Strategy)
        again = await client.reservations.confirm("r1", "s1")
        assert again.reservation.state == "confirmed_twice"

    play(scheduler, story)
    assert scheduler.states() == ["confirmed_twice", "pending"]
