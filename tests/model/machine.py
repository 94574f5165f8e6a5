"""A ledger that two replicas ask and the model side by side: what every model-based test here shares.

A test is a class with one method per operation and a `draw` that makes up the next operation. An
example is a list of operations, made from its seed alone, so it can be replayed and made smaller:
a failure prints the seed and the fewest operations that still fail.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from random import Random
from typing import Any

from hypothesis import settings as hypothesis_settings

from scheduler import errors
from scheduler.domain.node import DiscoveryState, Heartbeat, Node, NodeAddress, NodeSnapshot
from scheduler.domain.placement import Decision, ScheduleRequest, Strategy
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import LedgerSettings
from scheduler.ledger.ledger import Ledger
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.model import Conflicting, LifecycleModel, ModelReservation, Refusal, Told, Totals
from tests.support.model.ranking import Request, dimensions
from tests.support.recount import assert_ledger_is_sound

KNOWN_TEMPLATE = Template("known", cpu_count=2, memory_mb=1024)
SHRINKING_PLAYS = 300
_domains = itertools.count()


def address(node_id: str, labels: Mapping[str, str] | None = None) -> NodeAddress:
    return NodeAddress(node_id, f"http://{node_id}:8000", labels)


@dataclass(frozen=True)
class Operation:
    """A call of the machine's method `name`."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={shown(value)}' for name, value in self.arguments.items())})"


def shown(value: Any) -> str:
    """A value's repr, without the fields that stand at their defaults."""
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if not is_dataclass(value):
        return value.value if isinstance(value, Enum) else repr(value)
    told = ((each.name, getattr(value, each.name), each.default) for each in fields(value))
    return f"{type(value).__name__}({', '.join(f'{name}={shown(it)}' for name, it, usual in told if it != usual)})"


class SideBySide:
    """Tells both the same and compares every answer."""

    model: LifecycleModel

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.clock = VirtualClock()
        self.accepted: dict[str, list[int]] = {}  # generations that each node was answered
        self.generations: dict[int, int] = {}  # as the model counts them

    @classmethod
    def settings(cls, random: Random) -> LedgerSettings:
        """The settings of an example."""
        raise NotImplementedError

    @classmethod
    def draw(cls, random: Random) -> Operation:
        """The next operation. It must make sense whatever went before, since it may be left out."""
        raise NotImplementedError

    async def begin(self) -> None:
        """Before the first operation."""

    async def compare(self) -> None:
        """What must be equal whenever somebody looks. Looking may itself sweep, so it is an operation
        like any other, and the last one; between two looks the ledger may be as lazy as it likes."""
        raise NotImplementedError

    def model_of(self, chosen: LedgerSettings) -> LifecycleModel:
        return LifecycleModel(chosen, self.clock.now_ms)

    async def open(self, chosen: LedgerSettings) -> None:
        """A ledger of its own for this example, and the model of it."""
        domain = f"example-{next(_domains)}"
        self.replicas = [await self.backend.open(domain=domain, clock=self.clock) for _ in range(2)]
        self.next_replica()
        await put_settings(self.ledger, chosen)
        await self.ledger.templates.put(KNOWN_TEMPLATE)
        self.model = self.model_of(chosen)
        self.model.templates[KNOWN_TEMPLATE.template_id] = KNOWN_TEMPLATE

    def next_replica(self) -> None:
        """Two replicas take turns: neither remembers anything that decides."""
        self.replicas.reverse()
        self.ledger: Ledger = self.replicas[0]

    # Things both are told

    async def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.model.advance(ms)

    async def sweep(self) -> None:
        """Maintenance only does earlier what would be done anyway."""
        await self.ledger.reservations.sweep()

    async def set_node(self, node_id: str, lingering: bool, labels: Mapping[str, str] | None = None) -> None:
        state = DiscoveryState.LINGERING if lingering else DiscoveryState.ACTIVE
        node = address(node_id, labels)
        await self.ledger.nodes.set(node_id, node.endpoint, state, node.labels)
        self.model.set_node(node, lingering)

    async def remove_node(self, node_id: str) -> None:
        if node_id in self.model.nodes:
            await self.ledger.nodes.remove(node_id)
            self.model.remove_node(node_id)

    async def unregister(self, node_id: str) -> None:
        node = self.model.nodes.get(node_id)
        if node is not None and node.snapshot is not None:
            self.accepted.pop(node_id, None)
            await self.ledger.nodes.unregister(node_id, node.instance)
            self.model.unregister(node_id)

    async def report(self, node_id: str, snapshot: NodeSnapshot, instance: str = "one", **beside: Any) -> None:
        """A report of no sandboxes. `beside`: labels, resources."""
        await self.tell(node_id, Told(instance, snapshot, (), **beside))

    async def tell(self, node_id: str, told: Told, behind: int | None = None) -> None:
        """One report. `behind`: it was sampled when that many answers after the last but one were still to come."""
        answers = self.accepted.setdefault(node_id, [])
        generation = None
        if behind is not None and behind < len(answers):
            generation = answers[-1 - behind]
            told = replace(told, acknowledged=self.generations[generation])
        heartbeat = Heartbeat(
            node_id,
            told.instance,
            cluster_id="c1",
            snapshot=told.snapshot,
            sandbox_ids=told.roster,
            sequence=told.sequence,
            hung_up=told.hung_up,
            acknowledged_generation=generation,
            labels=told.labels,
            resources=told.resources,
        )
        try:
            result = await self.ledger.nodes.heartbeat(heartbeat, None)
        except errors.NodeNotListed:
            assert node_id not in self.model.nodes
            return
        assert node_id in self.model.nodes, "a report from outside discovery was taken"
        assert result.stale == self.model.heartbeat(node_id, told), "stale" if result.stale else "not stale"
        if not result.stale:
            answers.append(result.generation)
            self.generations[result.generation] = self.model.ledger(node_id).generation

    async def schedule(self, request: ScheduleRequest) -> ModelReservation | None:
        """The ledger's choice is the model's choice, and so is its refusal with every reason."""
        explanation = await self.ledger.placements.explain(request)
        try:
            decision: Decision | errors.NoNodes = await self.ledger.placements.schedule(request)
        except errors.NoNodes as refusal:
            decision = refusal
        except errors.Conflict:
            assert isinstance(self.model.schedule_named(request), Conflicting), "the sandbox id is free in the model"
            return None
        chosen = decision.node.node_id if isinstance(decision, Decision) else None
        expected = self.model.schedule_named(request, chosen)
        assert not isinstance(expected, Conflicting), f"placed on {chosen}, though the sandbox id is taken"
        if isinstance(expected, Refusal):
            assert isinstance(decision, errors.NoNodes), f"placed on {chosen}, the model refuses: {expected}"
            assert decision.reasons == expected.reasons
            assert decision.candidates == len(self.model.nodes)
            assert explanation.node is None
            assert explanation.reasons == expected.reasons
            assert Counter(node.reason for node in explanation.nodes) == expected.reasons
            return None
        assert isinstance(decision, Decision), f"refused with {decision}, the model places on {expected.node_id}"
        assert decision.node == NodeAddress(expected.node_id, expected.endpoint)
        assert decision.degraded == expected.degraded
        if self.model.settings.strategy is not Strategy.RANDOM:
            assert explanation.node == decision.node, "explain must name what schedule then chooses"
        assert (decision.reservation is None) == (expected.reservation is None)
        if expected.reservation is not None and decision.reservation is not None:
            expected.reservation.ledger_id = decision.reservation.reservation_id
            assert decision.reservation.cpu_count == expected.reservation.cpu
            assert decision.reservation.memory_bytes == expected.reservation.memory
            assert decision.reservation.expires_at_ms == expected.reservation.deadline_ms
        return expected.reservation

    # What must be equal

    async def compare_nodes(self) -> None:
        nodes = await self.ledger.nodes.list()
        report_ttl_ms = self.model.settings.report_ttl_ms
        expected_order = sorted(self.model.nodes, key=str.encode)
        assert [node.node_id for node in nodes] == expected_order
        for node in nodes:
            pending = Totals(node.pending.cpu_count, node.pending.memory_bytes, node.pending.sandbox_count)
            assert pending == self.model.pending(node.node_id), f"pending of {node.node_id}"
            self.compare_load(node)
            assert node.status == self.model.nodes[node.node_id].status(self.model.now_ms, report_ttl_ms), node.node_id

    def compare_load(self, node: Node) -> None:
        """Pressure of what is believed, so that loads which deletes have lowered are compared as well."""
        expected = [
            d.pressure
            for d in dimensions(
                self.model.nodes[node.node_id],
                self.model.pending(node.node_id),
                Request(False, 0, 0),
                self.model.settings,
            )
        ]
        if node.pressure is not None:
            assert [node.pressure.cpu, node.pressure.memory] == expected, f"load of {node.node_id}"

    async def compare_groups(self) -> None:
        total, groups, _ = await self.ledger.groups.list(1000, None)
        found = [(g.key, g.node_id, g.sandbox_count, g.cpu_count, g.memory_mb) for g in groups]
        expected = [(g.key, g.node_id, g.count, g.cpu, g.memory_mb) for g in reversed(self.model.groups.values())]
        assert found == expected
        assert total == len(expected)

    async def compare_reservations(self) -> None:
        for expected in self.model.reservations:
            found = await self.ledger.reservations.get(expected.ledger_id)
            states = [(one.state.value, one.reason) for one in (found, expected)]
            assert states[0] == states[1], f"{expected.name} on {expected.node_id} is {states[0]}, not {states[1]}"
            held = Totals(found.held_cpu_count, found.held_memory_bytes, found.held_sandbox_count)
            assert held == expected.held, f"{expected.name} on {expected.node_id}"


async def play(machine: type[SideBySide], backend: Backend, seed: int, operations: Sequence[Operation]) -> None:
    """One example from its first operation to its last look."""
    example = machine(backend)
    await example.open(machine.settings(Random(seed)))
    try:
        await example.begin()
        for operation in operations:
            example.next_replica()
            await getattr(example, operation.name)(**operation.arguments)
        await example.compare()
        await assert_ledger_is_sound(example.ledger)
    finally:
        for replica in example.replicas:
            await replica.close()


def operations_of(machine: type[SideBySide], seed: int, steps: int) -> list[Operation]:
    random = Random(f"operations of {seed}")
    return [machine.draw(random) for _ in range(steps)]


async def run_side_by_side(machine: type[SideBySide], backend: Backend, steps: int = 60) -> None:
    """As many examples as the profile says, a third on the embedded ledger, where Lua is slow.

    `SCHEDULER_TEST_SEED` moves the seeds, to search elsewhere or to replay one.
    """
    first = int(os.environ.get("SCHEDULER_TEST_SEED", "0"))
    examples = hypothesis_settings().max_examples
    for seed in range(first, first + (examples if backend.name == "real" else max(1, examples // 3))):
        await judge_seed(machine, backend, seed, steps)


async def judge_seed(machine: type[SideBySide], backend: Backend, seed: int, steps: int) -> None:
    """One example; AssertionError tells its seed, settings and the fewest operations that fail."""
    operations = operations_of(machine, seed, steps)
    failure = await failure_of(machine, backend, seed, operations)
    if failure is None:
        return
    fewest, failure = await _shrink(machine, backend, seed, operations, failure)
    told = "\n".join(f"    {operation}" for operation in fewest)
    raise AssertionError(
        f"{machine.__name__} with SCHEDULER_TEST_SEED={seed} on {backend.name}: {failure}\n"
        f"    {shown(machine.settings(Random(seed)))}\n{told}"
    ) from failure


async def failure_of(
    machine: type[SideBySide], backend: Backend, seed: int, operations: Sequence[Operation]
) -> Exception | None:
    try:
        await play(machine, backend, seed, operations)
    except (AssertionError, errors.SchedulerError) as failure:
        return failure
    return None


async def _shrink(
    machine: type[SideBySide], backend: Backend, seed: int, operations: list[Operation], failure: Exception
) -> tuple[list[Operation], Exception]:
    """Leave out ever smaller runs of operations as long as the rest fails with the same kind of error."""
    plays, size = 0, len(operations) // 2
    while size >= 1 and plays < SHRINKING_PLAYS:
        start = 0
        while start < len(operations) and plays < SHRINKING_PLAYS:
            fewer = operations[:start] + operations[start + size :]
            plays += 1
            found = await failure_of(machine, backend, seed, fewer)
            if type(found) is type(failure):
                operations, failure = fewer, found
            else:
                start += size
        size //= 2
    return operations, failure
