"""Nothing piles up: whatever was done, once all deadlines have passed only listed nodes and capped things remain."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    MachineInfo,
    NodeAddress,
    NodeSnapshot,
    NodeStatus,
    P2pEndpoint,
)
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import Lifecycle, Reservation
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent, SandboxEventType, Template
from scheduler.domain.settings import Admission, GroupPlacement, GroupSettings, LedgerSettings
from scheduler.errors import SchedulerError
from scheduler.inspection.key_table import explain_key
from scheduler.inspection.walks import keys_of
from scheduler.ledger.ledger import Ledger
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.recount import assert_ledger_is_sound

DAY_MS = 24 * 3_600_000
STEPS = 500
# The same steps on both ledgers: what a server was looked at for is looked for less often where looking takes long.
LOOK_EVERY = {"real": 10, "embedded": 50}
NODE_IDS = ("a", "b:1", "c%", "é", "n10", "n9")

# What may stay once everything has run out: it goes with its node, or is kept under a cap, or there is one of it.
OWNED_BY_A_NODE = {"node:{}", "node:{}:cpu_config", "node:{}:artifacts", "node:{}:doubts"}
SETS_OF_NODES = {
    "nodes", "loads", "silent", "unhealthy", "last_resort", "over_limit", "lingering", "candidates", "capacities",
    "capacity:{}", "classes", "heads", "row:{}", "unknown:{}",
}  # fmt: skip
CAPPED = {
    "groups", "groups:recent", "templates", "template:{}", "artifacts", "artifact:{}",
    "artifact_scopes", "cpu_configs:{}", "cpu_config_counts:{}", "cpu_config_result:{}",
}  # fmt: skip
ONE_OF_A_KIND = {"shared_settings", "sequence", "rotations", "stats", "tallies", "rates", "decisions", "audit"}


class Fuzz:
    """Every operation of the ledger, in an order and with figures that chance decides."""

    def __init__(self, ledger: Ledger, clock: VirtualClock, seed: int, look_every: int) -> None:
        self.look_every = look_every
        self.ledger, self.clock, self.random = ledger, clock, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.reservations: list[Reservation] = []
        self.successes: Counter[str] = Counter()
        self.sandboxes = 0

    async def run(self) -> None:
        actions: list[Callable[[], Awaitable[object]]] = [
            self.list_node, self.remove_node, self.report, self.report, self.report, self.tell_event, self.place,
            self.place, self.place, self.place, self.confirm, self.confirm, self.cancel, self.cancel_by_key, self.renew,
            self.assign, self.unregister, self.declare_template, self.forget_template, self.offer_artifact,
            self.forget_artifact, self.find_artifact, self.explain, self.hold_lease, self.sweep, self.change_settings,
            self.wait,
        ]  # fmt: skip
        for node_id in NODE_IDS[:3]:
            await self.ledger.nodes.set(node_id, endpoint(node_id), DiscoveryState.ACTIVE)
        for step in range(STEPS):
            action = self.random.choice(actions)
            try:
                await action()
            except SchedulerError:
                continue  # a refusal is an answer too
            self.done[action.__name__] += 1
            if step % self.look_every == 0:
                await assert_ledger_is_sound(self.ledger)
        assert not {action.__name__ for action in actions} - self.done.keys(), (
            "every operation took effect at least once"
        )

    @property
    def node_id(self) -> str:
        return self.random.choice(NODE_IDS)

    def new_sandbox(self) -> str:
        self.sandboxes += 1
        return f"s{self.sandboxes}"

    def old_sandbox(self) -> str:
        return f"s{self.random.randint(1, self.sandboxes + 1)}"

    def old_reservation(self) -> str:
        return self.random.choice(self.reservations).reservation_id if self.reservations else "none"

    async def list_node(self) -> None:
        state = self.random.choice([DiscoveryState.ACTIVE] * 4 + [DiscoveryState.LINGERING])
        node_id = self.node_id
        await self.ledger.nodes.set(node_id, endpoint(node_id), state)

    async def remove_node(self) -> None:
        await self.ledger.nodes.remove(self.node_id)

    async def report(self) -> None:
        node_id = self.node_id
        self.successes[node_id] += self.random.choice([0, 1, 2])
        used = self.random.randint(0, 8)
        snapshot = NodeSnapshot(
            self.random.choice([NodeStatus.READY] * 5 + [NodeStatus.UNHEALTHY]),
            cpu_count=self.random.choice([0, 16, 32]),
            memory_total_bytes=self.random.choice([0, 32_768 * MIB]),
            allocated_cpu=used,
            allocated_memory_bytes=used * 512 * MIB,
            sandbox_count=used,
            create_successes=self.successes[node_id],
        )
        roster = (
            None if self.random.random() < 0.4 else tuple(self.old_sandbox() for _ in range(self.random.randint(0, 6)))
        )
        heartbeat = Heartbeat(
            node_id,
            f"instance-{self.random.randint(1, 2)}",
            cluster_id=self.random.choice(["", "east"]),
            snapshot=snapshot,
            sandbox_ids=roster if self.random.random() < 0.6 else None,
            machine_info=MachineInfo(cpu_config_json=self.random.choice(["", '{"cpu": 1}', '{"cpu": 2}'])),
            p2p_endpoint=P2pEndpoint("store", f"{node_id}:9"),
        )
        result = await self.ledger.nodes.heartbeat(heartbeat)
        config = heartbeat.machine_info.cpu_config_json if heartbeat.machine_info else ""
        await self.ledger.cpu_configs.report(node_id, heartbeat.cluster_id, result.generation, config)

    async def tell_event(self) -> None:
        events = [
            SandboxEvent(
                self.old_sandbox(),
                self.random.choice(list(SandboxEventType)),
                self.random.randint(0, 2),
                self.random.choice([0, 512 * MIB]),
            )
            for _ in range(self.random.randint(1, 3))
        ]
        await self.ledger.nodes.record_events(self.node_id, "instance-1", events)

    def request(self) -> ScheduleRequest:
        kind = self.random.choice(list(HintKind))
        hint = Hint(
            kind,
            cpu_count=self.random.randint(0, 2) if kind is HintKind.COLD_SANDBOX else 0,
            memory_mb=self.random.choice([0, 512]) if kind is HintKind.COLD_SANDBOX else 0,
            images=(f"image-{self.random.randint(1, 30)}",),
            template_id=f"template-{self.random.randint(1, 5)}",
            locality=("layer-1", "layer-2"),
        )
        return ScheduleRequest(
            None if self.random.random() < 0.1 else hint,
            self.random.choice(list(Lifecycle)),
            self.random.choice([None, 10_000, DAY_MS]),
            exclude_nodes=(self.node_id,) if self.random.random() < 0.2 else (),
            idempotency_key=f"key-{self.random.randint(1, 99)}" if self.random.random() < 0.3 else None,
        )

    async def place(self) -> None:
        decision = await self.ledger.placements.schedule(self.request())
        if decision.reservation is not None:
            self.reservations.append(decision.reservation)

    async def explain(self) -> None:
        await self.ledger.placements.explain(self.request())

    async def confirm(self) -> None:
        sandbox_id = self.new_sandbox() if self.random.random() < 0.8 else self.old_sandbox()
        await self.ledger.reservations.confirm(self.old_reservation(), sandbox_id)

    async def cancel(self) -> None:
        await self.ledger.reservations.cancel(self.old_reservation(), "changed")

    async def cancel_by_key(self) -> None:
        await self.ledger.reservations.cancel_by_key("anonymous", f"key-{self.random.randint(1, 99)}")

    async def renew(self) -> None:
        await self.ledger.reservations.renew(self.old_reservation(), self.random.choice([1_000, 600_000, DAY_MS]))

    async def assign(self) -> None:
        node_id = self.node_id
        await self.ledger.bindings.record(self.old_sandbox(), NodeAddress(node_id, endpoint(node_id)))

    async def unregister(self) -> None:
        await self.ledger.nodes.unregister(self.node_id, f"instance-{self.random.randint(1, 2)}")

    async def declare_template(self) -> None:
        await self.ledger.templates.put(Template(f"template-{self.random.randint(1, 5)}", 1, 512))

    async def forget_template(self) -> None:
        await self.ledger.templates.delete(f"template-{self.random.randint(1, 5)}")

    def artifact(self) -> ArtifactKey:
        return ArtifactKey(self.random.choice(["", "east"]), "store", f"layer-{self.random.randint(1, 12)}")

    async def offer_artifact(self) -> None:
        await self.ledger.artifacts.record(self.artifact(), self.node_id)

    async def forget_artifact(self) -> None:
        await self.ledger.artifacts.forget(self.artifact(), self.node_id)

    async def find_artifact(self) -> None:
        await self.ledger.artifacts.lookup(self.artifact())

    async def hold_lease(self) -> None:
        await self.ledger.leases.hold("discovery", f"replica-{self.random.randint(1, 2)}", 5_000)
        await self.ledger.settings.keepalive(f"replica-{self.random.randint(1, 99)}")

    async def sweep(self) -> None:
        await self.ledger.reservations.sweep()

    async def change_settings(self) -> None:
        revision = (await self.ledger.settings.stats()).get("reservations_settled", 0) + self.done["change_settings"]
        await self.ledger.settings.put(fuzzed_settings(self.random, revision), "fuzz")
        await self.ledger.settings.refresh()

    async def wait(self) -> None:
        self.clock.advance(self.random.choice([1, 700, 5_000, 16_000, 31_000, 181_000, 601_000]))


def endpoint(node_id: str) -> str:
    return f"http://{node_id.encode().hex()}:8000"


def fuzzed_settings(chance: random.Random, revision: int = 0) -> LedgerSettings:
    return LedgerSettings(
        strategy=chance.choice(list(Strategy)),
        admission=chance.choice(list(Admission)),
        report_ttl_ms=chance.choice([30_000, 60_000, 10_000]),
        groups=GroupSettings(
            max_sandbox_count=3,
            group_placement=chance.choice(list(GroupPlacement)),
            max_open_groups=chance.choice([5, 40]),
        ),
        overcommit_cpu=chance.choice([1000, 1500, None]),
        templates_learn=True,
        artifact_store_capacity=8,
        locality_enabled=True,
        revision=revision,
    )


@pytest.mark.parametrize("seed", range(4))
async def test_after_everything_has_run_out_only_listed_nodes_and_capped_things_remain(
    seed: int, ledger: Ledger, clock: VirtualClock, backend: Backend
) -> None:
    fuzz = Fuzz(ledger, clock, seed, LOOK_EVERY[backend.name])
    await put_settings(ledger, fuzzed_settings(fuzz.random))
    await fuzz.run()
    await assert_ledger_is_sound(ledger)

    # Two deadlines of the longest kind, one after the other: a late end starts its own hour of being readable.
    for _ in range(3):
        clock.advance(DAY_MS + 1)
        while await ledger.settings.refresh():
            pass
        while await ledger.reservations.sweep():
            pass
    await ledger.settings.leave("fuzz")  # the next keepalive of any replica clears away the last ones
    await assert_ledger_is_sound(ledger)
    await assert_nothing_is_left(ledger)


async def assert_nothing_is_left(ledger: Ledger) -> None:
    """What has a TTL ends by itself, on the server's clock; everything else must be one of the few that may stay."""
    listed = {address.node_id for address in await ledger.nodes.addresses()}
    allowed = OWNED_BY_A_NODE | SETS_OF_NODES | CAPPED | ONE_OF_A_KIND
    left = []
    async for page in keys_of(ledger):
        for key in page:
            if int(await ledger.client.command("PTTL", key)) > 0:
                continue
            found = explain_key(ledger.keys, key)
            owned = found is not None and (found.kind.name not in OWNED_BY_A_NODE or found.identity in listed)
            if found is None or found.kind.name not in allowed or not owned:
                left.append(key)
    assert not left


async def test_a_reservation_outlives_its_place_in_the_lists(ledger: Ledger, clock: VirtualClock) -> None:
    """Its hash tells which lists it is to be taken off, so it must not end by itself before that."""
    await ledger.nodes.set("a", "http://a", DiscoveryState.ACTIVE)
    await ledger.nodes.heartbeat(Heartbeat("a", "one", snapshot=NodeSnapshot(NodeStatus.READY, cpu_count=8)))
    hint = Hint(HintKind.COLD_SANDBOX, cpu_count=1)
    decision = await ledger.placements.schedule(ScheduleRequest(hint, Lifecycle.HEARTBEAT))
    assert decision.reservation is not None
    reservation_id = decision.reservation.reservation_id
    grown = NodeSnapshot(NodeStatus.READY, cpu_count=8, allocated_cpu=1, create_successes=1)
    await ledger.nodes.heartbeat(Heartbeat("a", "one", snapshot=grown))
    command, keys = ledger.client.command, ledger.keys
    assert await command("ZCARD", keys.node_acknowledged("a")) == 1

    listed_until = int(float(await command("ZSCORE", keys.finished, reservation_id)))
    assert int(await command("PTTL", keys.reservation(reservation_id))) > listed_until - clock.now_ms + 60_000
    clock.now_ms = listed_until
    await ledger.reservations.sweep()
    assert await command("EXISTS", keys.reservation(reservation_id)) == 0
    assert await command("ZCARD", keys.node_acknowledged("a")) == 0


async def test_a_node_that_a_longer_report_ttl_makes_fresh_again_falls_silent_again(
    ledger: Ledger, clock: VirtualClock
) -> None:
    await ledger.nodes.set("a", "http://a", DiscoveryState.ACTIVE)
    await ledger.nodes.heartbeat(Heartbeat("a", "one", snapshot=NodeSnapshot(NodeStatus.READY, cpu_count=8)))
    clock.advance(40_000)
    await ledger.reservations.sweep()
    await put_settings(ledger, LedgerSettings(report_ttl_ms=60_000, revision=1))
    await ledger.settings.refresh()
    await assert_ledger_is_sound(ledger)
    assert (await ledger.nodes.get("a")).status is NodeStatus.READY
    clock.advance(21_000)
    decision = await ledger.placements.schedule(ScheduleRequest())
    assert decision.degraded, "nobody has heard of it for longer than report_ttl"
    await assert_ledger_is_sound(ledger)
