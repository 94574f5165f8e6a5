"""Any sequence of calls, spread over two replicas at random, is answered as if there were one.

Hypothesis makes the sequences up; the model beside them is the contract of the HTTP interface in its plainest form.
Both replicas are whole applications with a store of their own; they share a real server and a clock held in hand.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from scheduler.api.http import create_app
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.inspection.recount import recount
from scheduler.ledger.ledger import Ledger, open_ledger
from scheduler.service import build_services
from tests.support.backends import put_settings
from tests.support.clock import VirtualClock
from tests.support.servers import RedisServer

MIB = 1024 * 1024
DEFAULT_TTL_MS = 600_000
READABLE_MS = 3_600_000
_domains = itertools.count()
_server: RedisServer | None = None

replicas = st.integers(0, 1)
sizes = st.tuples(st.integers(1, 5), st.sampled_from([64, 512, 1_500]))
sandboxes = st.integers(0, 12).map(lambda number: f"sandbox-{number}")


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[RedisServer]:
    global _server
    with RedisServer() as _server:
        yield _server


@dataclass
class ModelNode:
    cpu_count: int
    memory_mb: int
    active: bool = True


@dataclass
class ModelReservation:
    """What the contract says of one reservation. `key` None: scheduled without one."""

    reservation_id: str
    node_id: str
    cpu_count: int
    memory_mb: int
    key: str | None
    expires_at_ms: int
    state: str = "pending"
    sandbox_id: str | None = None
    orphaned: bool = False

    def state_at(self, now_ms: int) -> str:
        if self.expires_at_ms <= now_ms:
            return {"pending": "expired", "confirmed": "settled"}.get(self.state, self.state)
        return self.state


class TwoReplicas(RuleBasedStateMachine):
    known = Bundle("known")

    @initialize()
    def start(self) -> None:
        self.runner = asyncio.Runner()
        self.clock = VirtualClock()
        self.nodes: dict[str, ModelNode] = {}
        self.reservations: dict[str, ModelReservation] = {}
        self.tombstones: set[str] = set()
        self.keys = itertools.count()
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    async def _start(self) -> None:
        assert _server is not None
        domain = f"two-{next(_domains)}"
        self.ledgers: list[Ledger] = []
        self.clients: list[httpx.AsyncClient] = []
        for _ in range(2):
            ledger = await open_ledger(_server.address, domain=domain, clock=self.clock)
            self.ledgers.append(ledger)
            transport = httpx.ASGITransport(create_app(build_services(ledger)))
            self.clients.append(httpx.AsyncClient(transport=transport, base_url="http://replica", timeout=60))
        await put_settings(self.ledgers[0], LedgerSettings(strategy=Strategy.LEAST_LOADED, report_ttl_ms=30_000))

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.run(self._judge_and_close())
            self.runner.close()

    async def _judge_and_close(self) -> None:
        violations = await recount(self.ledgers[0])
        for client in self.clients:
            await client.aclose()
        for ledger in self.ledgers:
            await ledger.close()
        assert violations == []

    def ask(self, replica: int, method: str, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        answer: httpx.Response = self.run(self.clients[replica].request(method, path, json=body, headers=headers))
        return answer

    # -- the model's own arithmetic -----------------------------------------------------------------------------------

    def free(self, node_id: str) -> tuple[int, int]:
        node, now_ms = self.nodes[node_id], self.clock()
        held = [
            each
            for each in self.reservations.values()
            if each.node_id == node_id and each.state_at(now_ms) in ("pending", "confirmed")
        ]
        return (
            node.cpu_count - sum(each.cpu_count for each in held),
            node.memory_mb - sum(each.memory_mb for each in held),
        )

    def fits(self, node_id: str, cpu_count: int, memory_mb: int) -> bool:
        free_cpu, free_mb = self.free(node_id)
        return self.nodes[node_id].active and cpu_count <= free_cpu and memory_mb <= free_mb

    def told_elsewhere(self, sandbox_id: str, reservation_id: str) -> bool:
        return any(
            each.sandbox_id == sandbox_id and each.reservation_id != reservation_id
            for each in self.reservations.values()
        )

    # -- nodes --------------------------------------------------------------------------------------------------------

    @rule(replica=replicas, number=st.integers(0, 3), capacity=st.tuples(st.integers(1, 12), st.integers(64, 6_000)))
    def a_node_reports(self, replica: int, number: int, capacity: tuple[int, int]) -> None:
        """A node that is listed keeps the capacity it has: growing and shrinking is other tests' business."""
        node_id = f"node-{number}"
        if node_id not in self.nodes:
            self.nodes[node_id] = ModelNode(*capacity)
            put = self.ask(replica, "PUT", f"/v1/nodes/{node_id}", {"endpoint": f"http://{node_id}:8000"})
            assert put.status_code == 200, put.text
        self._report(replica, node_id)

    def _report(self, replica: int, node_id: str) -> None:
        node = self.nodes[node_id]
        snapshot = {"status": "ready", "cpu_count": node.cpu_count, "memory_total_bytes": node.memory_mb * MIB}
        body = {"service_instance_id": "one", "snapshot": snapshot}
        assert self.ask(replica, "POST", f"/v1/nodes/{node_id}/heartbeat", body).status_code == 200

    @rule(replica=replicas, number=st.integers(0, 3), active=st.booleans())
    def a_node_is_drained_or_taken_back(self, replica: int, number: int, active: bool) -> None:
        node_id = f"node-{number}"
        if node_id in self.nodes:
            body = {"endpoint": f"http://{node_id}:8000", "state": "active" if active else "lingering"}
            assert self.ask(replica, "PUT", f"/v1/nodes/{node_id}", body).status_code == 200
            self.nodes[node_id].active = active

    @rule(replica=replicas, seconds=st.sampled_from([0, 1, 20, 60, 400, 1_000]))
    def time_passes(self, replica: int, seconds: int) -> None:
        """However long: every node reports again before anything is asked."""
        self.clock.advance(seconds * 1_000)
        for node_id in self.nodes:
            self._report(replica, node_id)
        now_ms = self.clock()
        gone = [each for each in self.reservations.values() if each.expires_at_ms + READABLE_MS <= now_ms]
        for each in gone:  # no longer readable for sure, and neither asked about nor held against anybody
            del self.reservations[each.reservation_id]

    # -- placing ------------------------------------------------------------------------------------------------------

    @rule(target=known, replica=replicas, size=sizes, with_key=st.booleans(), ttl_s=st.sampled_from([None, 5, 90]))
    def schedule(self, replica: int, size: tuple[int, int], with_key: bool, ttl_s: int | None) -> Any:
        key = f"key-{next(self.keys)}" if with_key else None
        answer = self.ask(replica, "POST", "/v1/schedule", _request(size, ttl_s), key)
        if not any(self.fits(node_id, *size) for node_id in self.nodes):
            assert (answer.status_code, answer.json()["code"]) == (503, "no_nodes"), answer.text
            return multiple()
        assert answer.status_code == 200, answer.text
        told = answer.json()["reservation"]
        assert not answer.json()["replayed"]
        assert self.fits(told["node_id"], *size), f"{told['node_id']} has not enough free: {self.free(told['node_id'])}"
        deadline_ms = self.clock() + (DEFAULT_TTL_MS if ttl_s is None else ttl_s * 1_000)
        assert told["expires_at_ms"] == deadline_ms
        made = ModelReservation(told["reservation_id"], told["node_id"], *size, key, deadline_ms)
        assert made.reservation_id not in self.reservations
        self.reservations[made.reservation_id] = made
        return (made.reservation_id, size, ttl_s)

    @rule(replica=replicas, what=known, other_size=sizes)
    def schedule_again_under_the_same_key(self, replica: int, what: Any, other_size: tuple[int, int]) -> None:
        reservation_id, size, ttl_s = what
        reservation = self.reservations.get(reservation_id)
        if reservation is None or reservation.key is None:
            return
        over = reservation.state_at(self.clock()) in ("cancelled", "expired")
        for asked in {size, other_size}:
            answer = self.ask(replica, "POST", "/v1/schedule", _request(asked, ttl_s), reservation.key)
            if over or asked != size:
                assert answer.status_code == 409, answer.text
            else:
                assert answer.status_code == 200, answer.text
                assert answer.json()["replayed"]
            assert answer.json()["reservation"]["reservation_id"] == reservation_id
            assert answer.json()["reservation"]["node_id"] == reservation.node_id

    # -- the life of a reservation ------------------------------------------------------------------------------------

    @rule(replica=replicas, what=known, sandbox_id=sandboxes)
    def confirm(self, replica: int, what: Any, sandbox_id: str) -> None:
        reservation = self.reservations.get(what[0])
        if reservation is None:
            return
        answer = self.ask(
            replica, "POST", f"/v1/reservations/{reservation.reservation_id}/confirm", {"sandbox_id": sandbox_id}
        )
        state = reservation.state_at(self.clock())
        told = reservation.sandbox_id
        if state == "cancelled" or told not in (None, sandbox_id) or self._told_to_another(reservation, sandbox_id):
            assert answer.status_code == 409, answer.text
            return
        assert answer.status_code == 200, answer.text
        body = answer.json()
        if told == sandbox_id and state in ("confirmed", "settled"):
            assert body["replayed"]
            return
        assert not body["replayed"]
        assert body["orphaned"] == (state == "expired")
        reservation.state, reservation.sandbox_id = "confirmed", sandbox_id
        reservation.expires_at_ms = self.clock() + DEFAULT_TTL_MS
        assert body["reservation"]["state"] == "confirmed"
        found = self.ask(1 - replica, "GET", f"/v1/bindings/{sandbox_id}")
        assert found.json()["node"]["node_id"] == reservation.node_id

    def _told_to_another(self, reservation: ModelReservation, sandbox_id: str) -> bool:
        return self.told_elsewhere(sandbox_id, reservation.reservation_id)

    @rule(replica=replicas, what=known)
    def cancel(self, replica: int, what: Any) -> None:
        reservation = self.reservations.get(what[0])
        if reservation is None:
            return
        answer = self.ask(replica, "POST", f"/v1/reservations/{reservation.reservation_id}/cancel", {})
        self._judge_cancel(reservation, answer)

    @rule(replica=replicas, what=known)
    def cancel_by_key(self, replica: int, what: Any) -> None:
        reservation = self.reservations.get(what[0])
        if reservation is None or reservation.key is None:
            return
        body = {"idempotency_key": reservation.key}
        self._judge_cancel(reservation, self.ask(replica, "POST", "/v1/reservations/cancel", body))

    def _judge_cancel(self, reservation: ModelReservation, answer: httpx.Response) -> None:
        state = reservation.state_at(self.clock())
        if state in ("confirmed", "settled"):
            assert answer.status_code == 409, answer.text
            return
        assert answer.status_code == 200, answer.text
        assert answer.json()["replayed"] == (state == "cancelled")
        if state == "pending":
            reservation.state = "cancelled"
        assert answer.json()["reservation"]["state"] == ("expired" if state == "expired" else "cancelled")

    @rule(replica=replicas)
    def cancel_before_the_schedule_arrives(self, replica: int) -> None:
        key = f"key-{next(self.keys)}"
        assert self.ask(replica, "POST", "/v1/reservations/cancel", {"idempotency_key": key}).status_code == 200
        refused = self.ask(1 - replica, "POST", "/v1/schedule", _request((1, 64), None), key)
        assert refused.status_code == 409, refused.text

    @rule(replica=replicas, what=known, ttl_s=st.sampled_from([1, 30, 1_200]))
    def renew(self, replica: int, what: Any, ttl_s: int) -> None:
        reservation = self.reservations.get(what[0])
        if reservation is None:
            return
        body = {"ttl": f"{ttl_s}s"}
        answer = self.ask(replica, "POST", f"/v1/reservations/{reservation.reservation_id}/renew", body)
        if reservation.state_at(self.clock()) != "pending":
            assert answer.status_code == 409, answer.text
            return
        assert answer.status_code == 200, answer.text
        reservation.expires_at_ms = self.clock() + ttl_s * 1_000
        assert answer.json()["reservation"]["expires_at_ms"] == reservation.expires_at_ms

    @rule(what=consumes(known))
    def forget(self, what: Any) -> None:
        """Callers die. What they reserved runs out by itself, and counts until then."""

    # -- what holds always --------------------------------------------------------------------------------------------

    @rule(what=known)
    def both_replicas_tell_the_same(self, what: Any) -> None:
        reservation = self.reservations.get(what[0])
        if reservation is None:
            return
        path = f"/v1/reservations/{reservation.reservation_id}"
        views = [self.ask(replica, "GET", path).json() for replica in (0, 1)]
        assert views[0] == views[1]
        assert views[0]["reservation"]["state"] == reservation.state_at(self.clock())
        assert views[0]["reservation"]["sandbox_id"] == reservation.sandbox_id

    @invariant()
    def pending_totals_are_what_is_held(self) -> None:
        if not getattr(self, "nodes", None):
            return
        self.run(self.ledgers[0].reservations.sweep())
        shown = self.ask(len(self.reservations) % 2, "GET", "/v1/nodes").json()["nodes"]
        for view in shown:
            node = self.nodes[view["node_id"]]
            free_cpu, free_mb = self.free(view["node_id"])
            assert view["pending"]["cpu_count"] == node.cpu_count - free_cpu
            assert view["pending"]["memory_bytes"] == (node.memory_mb - free_mb) * MIB


def _request(size: tuple[int, int], ttl_s: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"hint": {"kind": "cold_sandbox", "cpu_count": size[0], "memory_mb": size[1]}}
    return body if ttl_s is None else {**body, "reservation_ttl": f"{ttl_s}s"}


class TestTwoReplicas(TwoReplicas.TestCase):  # type: ignore[misc, name-defined]
    settings = hypothesis_settings(
        max_examples=max(10, hypothesis_settings().max_examples // 3), stateful_step_count=40, deadline=None
    )


@pytest.mark.soak
@pytest.mark.timeout(3_600)
class TestTwoReplicasForLong(TwoReplicas.TestCase):  # type: ignore[misc, name-defined]
    settings = hypothesis_settings(max_examples=1_000, stateful_step_count=80, deadline=None)
