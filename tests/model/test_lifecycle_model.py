"""Random interleavings of callers, nodes and time: every reservation ends as the model says, no
capacity is free while it is reserved, and none is held after its reservation ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from random import Random

import pytest

from scheduler import errors
from scheduler.domain.limits import MIB
from scheduler.domain.node import NodeSnapshot, NodeStatus
from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest, Spread, Strategy
from scheduler.domain.reservation import CancelCause, Lifecycle, ReservationResult
from scheduler.domain.resources import ResourceLoad
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.domain.settings import AffinitySettings, AvoidSettings, GroupSettings, LedgerSettings
from tests.model.machine import Operation, SideBySide, address, run_side_by_side
from tests.support import fleets
from tests.support.backends import Backend
from tests.support.clock import EPOCH_MS
from tests.support.model import Conflicting, Done, ModelReservation, Refusal, Told, Verdict

NODES = ("a", "b", "c")
SANDBOXES = ("s0", "s1", "s2", "s3", "s4")
KEYS = ("key-1", "key-2")
LABELS: dict[str, dict[str, str]] = {"a": {"zone": "x"}, "b": {"zone": "y"}, "c": {}}
SPREADS = (Spread("k", max=2), Spread("k", skew=1), Spread("k", over="zone", skew=1))
GPUS = {"gpu": ResourceLoad(8, 2)}
REASON = "changed my mind"
WAITS_MS = (1, 1_000, 4_999, 15_000, 15_000, 30_000, 30_001, 60_000)
# Events are remembered for ten minutes; beyond that a told one may count again.
LONGEST_RUN_MS = 9 * 60_000
FIRST_REPORT = NodeSnapshot(
    status=NodeStatus.READY, cpu_count=64, memory_total_bytes=128 * fleets.GIB, reported_at_unix_ms=1
)


def draw_request(random: Random) -> ScheduleRequest:
    hint = Hint(
        HintKind.COLD_SANDBOX,
        cpu_count=random.choice([0, 1, 2, 2]),
        memory_mb=random.choice([0, 1024, 1024]),
        images=random.choice([(), ("app",), ("app",), ("db",)]),
        require=random.choice([{}, {}, {}, {}, {"zone": ("x", "y")}]),
        resources=random.choice([{}, {}, {}, {"gpu": 1}, {"gpu": 2}]),
        spread=random.choice([None, None, *SPREADS]),
    )
    sandbox_id = random.choice(SANDBOXES) if random.random() < 0.15 else None
    return ScheduleRequest(hint, lifecycle=random.choice(list(Lifecycle)), sandbox_id=sandbox_id)


def draw_event(random: Random) -> SandboxEvent:
    kinds = [SandboxEventType.CREATE] * 5 + [SandboxEventType.DELETE] * 2 + [SandboxEventType.FORK] * 2
    return SandboxEvent(
        random.choice(SANDBOXES),
        random.choice([*kinds, SandboxEventType.PAUSE, SandboxEventType.RESUME]),
        requested_cpu=random.choice([1, 2]),
        requested_memory_bytes=random.choice([1024, 1024, 2048]) * MIB,
    )


class LifecycleMachine(SideBySide):
    """A few big nodes, so that nearly everything is placed and has a life to live."""

    @classmethod
    def settings(cls, random: Random) -> LedgerSettings:
        grouped = [Strategy.GROUPED_ROUND_ROBIN] * 2
        return LedgerSettings(
            strategy=random.choice([Strategy.LEAST_LOADED, Strategy.ROUND_ROBIN, *grouped]),
            fill_to=random.choice([0, 0, 750]),
            affinity=AffinitySettings(random.choice([None, 20]), keys_per_node=1),
            groups=GroupSettings(max_sandbox_count=random.choice([3, 5]), max_cpu_count=random.choice([0, 6])),
            binding_grace_ms=random.choice([0, 15_000, 15_000]),
            placement_reservation_ttl_ms=60_000,
            avoid=AvoidSettings(
                refusals=random.choice([0, 1, 2, 3]),
                first_ms=random.choice([1_000, 5_000]),
                longest_ms=30_000,
                share_percent=random.choice([33, 67, 100]),
            ),
            resources=("gpu",),
            scarce=random.choice([(), ("zone",)]),
        )

    @classmethod
    def draw(cls, random: Random) -> Operation:
        kinds = {
            "schedule": 9, "confirm": 7, "cancel": 3, "renew": 2, "schedule_by_key": 3, "cancel_by_key": 1,
            "report_growth": 11, "tell_events": 5, "record_assignment": 2, "wait": 5,
            "set_node": 2, "remove_node": 1, "refuse": 2, "unregister": 1, "sweep": 1, "compare": 1,
        }  # fmt: skip
        name = random.choices(list(kinds), list(kinds.values()))[0]
        return Operation(name, cls._arguments(name, random))

    @classmethod
    def _arguments(cls, name: str, random: Random) -> dict[str, object]:
        node_id, sandbox_id = random.choice(NODES), random.choice(SANDBOXES)
        # Of the latest reservations mostly: they have the longest life before them.
        back = min(random.randint(0, 9), random.randint(0, 9))
        listed = fleets.some(random, SANDBOXES, 0, 4)
        instance = "two" if random.random() < 0.1 else "one"
        growth = {
            "node_id": node_id,
            "seed": random.randint(0, 10**6),
            "instance": instance,
            "roster": None if random.random() < 0.2 else listed,
            "sequence": random.choice(["next", "next", "next", "next", "late", None]),
            "hung_up": random.random() < 0.1,
            "behind": random.choice([None, None, 0, 1]),
        }
        by_name: dict[str, dict[str, object]] = {
            "schedule": {"request": draw_request(random)},
            "confirm": {"back": back, "sandbox_id": sandbox_id},
            "cancel": {"back": back, "answered": random.random() < 0.5},
            "renew": {"back": back, "ttl_ms": random.choice([5_000, 90_000])},
            "schedule_by_key": {"request": draw_request(random), "key": random.choice(KEYS)},
            "cancel_by_key": {"key": random.choice(KEYS)},
            "report_growth": growth,
            "tell_events": {
                "node_id": node_id,
                "instance": instance,
                "events": [draw_event(random) for _ in range(random.randint(1, 3))],
            },
            "record_assignment": {"sandbox_id": sandbox_id, "node_id": node_id},
            "wait": {"ms": random.choice(WAITS_MS)},
            "set_node": {"node_id": node_id, "lingering": random.random() < 0.2},
            "remove_node": {"node_id": node_id},
            "unregister": {"node_id": node_id},
            "refuse": {"node_id": node_id, "times": random.choice([1, 2, 3]), "at_once": random.random() < 0.4},
        }
        return by_name.get(name, {})

    async def begin(self) -> None:
        self.sequences: Counter[tuple[str, str]] = Counter()
        for node_id in NODES:
            await self.set_node(node_id, lingering=False, labels=LABELS[node_id])
            await self.report(node_id, FIRST_REPORT, resources=GPUS)

    # Nodes

    async def report_growth(
        self,
        node_id: str,
        seed: int,
        instance: str,
        roster: Sequence[str] | None,
        sequence: str | None,
        hung_up: bool,
        behind: int | None,
    ) -> None:
        """`sequence`: the next of that process, one that was told already ("late"), or none."""
        node = self.model.nodes.get(node_id)
        before = node.snapshot if node is not None and node.snapshot is not None else FIRST_REPORT
        random = Random(seed)
        snapshot = replace(
            fleets.next_snapshot(random, before),
            status=NodeStatus.READY,
            sandbox_starting_count=random.choice([0, 0, 1, 2]),
            create_fails=before.create_fails + random.choice([0, 0, 0, 0, 0, 1, 1, 3]),
            paused_allocated_cpu=random.choice([0, 0, 0, 1]),
            paused_sandbox_count=int(random.random() < 0.1),
            # On the node's clock: some time ago, or it was set back.
            reported_at_unix_ms=self.clock.now_ms - random.choice([0, 0, 0, 1_000, 10_000, 60_000]),
        )
        await self._notice_silence()
        self.sequences[node_id, instance] += sequence == "next"
        number = None if sequence is None else self.sequences[node_id, instance] or None
        listed = None if roster is None else tuple(roster)
        labels = {"zone": "y"} if node_id == "c" and random.random() < 0.5 else {}
        told = Told(instance, snapshot, listed, number, hung_up, labels=labels, resources=GPUS)
        await self.tell(node_id, told, behind)

    async def tell_events(self, node_id: str, instance: str, events: Sequence[SandboxEvent]) -> None:
        if node_id in self.model.nodes:
            counted = await self.ledger.nodes.record_events(node_id, instance, events)
            assert counted == self.model.record_events(node_id, instance, events)

    # Callers

    def _latest(self, back: int) -> ModelReservation | None:
        reservations = self.model.reservations
        return reservations[-1 - back] if back < len(reservations) else None

    async def confirm(self, back: int, sandbox_id: str) -> None:
        if (reservation := self._latest(back)) is not None:
            answer = await _answer(self.ledger.reservations.confirm(reservation.ledger_id, sandbox_id))
            _same(answer, self.model.confirm(reservation, sandbox_id))

    async def cancel(self, back: int, answered: bool) -> None:
        if (reservation := self._latest(back)) is not None:
            await self._notice_silence()
            cause = CancelCause.NODE_REFUSED if answered else CancelCause.CALLER
            answer = await _answer(self.ledger.reservations.cancel(reservation.ledger_id, REASON, cause))
            _same(answer, self.model.cancel(reservation, REASON, answered))

    async def _notice_silence(self) -> None:
        """How many nodes may be avoided counts those that may be chosen; silence is noticed when somebody looks."""
        await self.ledger.placements.explain(ScheduleRequest(Hint(HintKind.COLD_SANDBOX)))

    async def refuse(self, node_id: str, times: int, at_once: bool) -> None:
        """A node says no to so many creations, which ask for it alone: in turn, or all under way at once."""
        request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX), exclude_nodes=tuple({*NODES} - {node_id}))
        for _ in range(1 if at_once else times):
            placed = [await self.schedule(request) for _ in range(times if at_once else 1)]
            for back in range(sum(reservation is not None for reservation in placed)):
                await self.cancel(back, answered=True)
        await self.compare_avoided()

    async def renew(self, back: int, ttl_ms: int) -> None:
        if (reservation := self._latest(back)) is not None:
            answer = await _answer(self.ledger.reservations.renew(reservation.ledger_id, ttl_ms))
            _same(answer, self.model.renew(reservation, ttl_ms))

    async def cancel_by_key(self, key: str) -> None:
        answer = await _answer(self.ledger.reservations.cancel_by_key("anonymous", key, REASON))
        _same(answer, self.model.cancel_by_key(key, REASON))

    async def schedule_by_key(self, request: ScheduleRequest, key: str) -> None:
        keyed = replace(request, idempotency_key=key)
        try:
            decision: Decision | errors.SchedulerError = await self.ledger.placements.schedule(keyed)
        except (errors.NoNodes, errors.Conflict) as refusal:
            decision = refusal
        expected = self.model.schedule_by_key(key, request)
        if isinstance(expected, Conflicting):
            assert isinstance(decision, errors.Conflict), decision
            return
        if isinstance(expected, Refusal):
            assert isinstance(decision, errors.NoNodes), decision
            return
        assert isinstance(decision, Decision), decision
        assert decision.replayed == isinstance(expected, ModelReservation)
        reservation = expected.reservation if isinstance(expected, Verdict) else expected
        assert reservation is not None
        assert decision.reservation is not None
        assert decision.node.node_id == reservation.node_id
        reservation.ledger_id = reservation.ledger_id or decision.reservation.reservation_id
        assert decision.reservation.reservation_id == reservation.ledger_id

    async def record_assignment(self, sandbox_id: str, node_id: str) -> None:
        if node_id in self.model.nodes:
            await self.ledger.bindings.record(sandbox_id, address(node_id))
            self.model.record_assignment(sandbox_id, node_id)

    # Time and looking

    async def wait(self, ms: int) -> None:
        """What outlives its time is swept at once: whether something is, before anybody looks, is left open."""
        if self.model.now_ms + ms < EPOCH_MS + LONGEST_RUN_MS:
            bound = len(self.model.bindings)
            await super().wait(ms)
            while len(self.model.bindings) != bound and await self.ledger.reservations.sweep():
                pass

    async def compare(self) -> None:
        await self.compare_reservations()
        await self.compare_bindings()
        await self.compare_spread()
        await self.compare_groups()
        await self.compare_nodes()
        await self.compare_avoided()

    async def compare_avoided(self) -> None:
        """Until when, and what the node's view says of it now."""
        for node in await self.ledger.nodes.list():
            if node.eligible or node.ineligible_reason == "avoided":
                assert node.eligible != self.model.is_avoided(node.node_id), f"{node.node_id} is avoided"
            state = self.model.watched.get(node.node_id)
            key = self.ledger.keys.node(node.node_id)
            until_ms = await self.ledger.client.command("HGET", key, "avoided_until_ms")
            found = None if until_ms is None else int(until_ms)
            assert found == (state and state.until_ms), f"{node.node_id} is avoided until then"

    async def compare_spread(self) -> None:
        flat = await self.ledger.client.command("HGETALL", self.ledger.keys.spread("k"))
        found = {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}
        assert found == dict(self.model.spread_counts("k"))

    async def compare_bindings(self) -> None:
        for sandbox_id in SANDBOXES:
            try:
                found = (await self.ledger.bindings.lookup(sandbox_id)).node.node_id
            except errors.NotFound:
                found = None
            assert found == self.model.lookup(sandbox_id), sandbox_id


async def _answer(call: Awaitable[ReservationResult]) -> ReservationResult | errors.Conflict:
    try:
        return await call
    except errors.Conflict as conflict:
        return conflict


def _same(answer: ReservationResult | errors.Conflict, expected: Done | Conflicting) -> None:
    if isinstance(expected, Conflicting):
        assert isinstance(answer, errors.Conflict), answer
        return
    assert isinstance(answer, ReservationResult), answer
    assert (answer.replayed, answer.orphaned) == (expected.replayed, expected.orphaned), answer


@pytest.mark.timeout(0)
async def test_every_reservation_ends_as_the_model_says(backend: Backend) -> None:
    await run_side_by_side(LifecycleMachine, backend, steps=80)
