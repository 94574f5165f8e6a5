"""What services do around a ledger call: check, clean, count, and say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from scheduler.domain.fleet import FleetTally
from scheduler.domain.node import (
    DiscoveryState,
    Heartbeat,
    NodeAddress,
    NodeSnapshot,
    P2pEndpoint,
    PendingTotals,
)
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.domain.sandbox import ArtifactKey, SandboxEvent, SandboxEventType
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import InvalidRequest, NodeNotListed, NoNodes, NotFound, StoreUnavailable, StoreUnusable
from scheduler.ledger.ledger import Ledger
from scheduler.ledger.settings import SettingsOutcome
from scheduler.observability.ledger_figures import NODES_SHOWN, LedgerFigures
from scheduler.observability.metrics import Metrics, refusal_reason
from scheduler.service import Services, build_services
from tests.support.embedded import fail_with, note_calls, sent_to

HINT = Hint(HintKind.COLD_SANDBOX, cpu_count=2, memory_mb=1024)


@pytest.fixture
def services(embedded_ledger: Ledger) -> Services:
    return build_services(embedded_ledger)


def page(services: Services) -> str:
    return services.metrics.page().decode()


async def list_node(services: Services, node_id: str = "node-a") -> None:
    await services.nodes.set(node_id, f"http://{node_id}:8000", DiscoveryState.ACTIVE)


# AgentENV's clients match on these texts or show them to people, so they are part of the contract.
BLANK_TEXTS: list[tuple[str, Callable[[Services], Awaitable[object]]]] = [
    ("sandbox_id is required", lambda services: services.bindings.lookup(" ")),
    ("sandbox_id is required", lambda services: services.bindings.record("", NodeAddress("a", "http://a"))),
    ("node_id and endpoint are required", lambda services: services.bindings.record("s", NodeAddress("a", " "))),
    ("node_id and endpoint are required", lambda services: services.bindings.record("s", NodeAddress("", "http://a"))),
    ("node_id and service_instance_id are required", lambda services: services.nodes.heartbeat(Heartbeat("a", " "))),
    ("node_id and service_instance_id are required", lambda services: services.nodes.heartbeat(Heartbeat("", "i"))),
    ("node_id and service_instance_id are required", lambda services: services.nodes.unregister("a", "")),
    ("node_id is required", lambda services: services.nodes.get("\t")),
    (
        "cluster_id, backend, key, and node_id are required",
        lambda services: services.artifacts.record(ArtifactKey("c", "b", "k"), ""),
    ),
    (
        "cluster_id, backend, key, and node_id are required",
        lambda services: services.artifacts.forget(ArtifactKey("c", " ", "k"), "a"),
    ),
    (
        "cluster_id, backend, and key are required",
        lambda services: services.artifacts.lookup(ArtifactKey("", "b", "k")),
    ),
]


@pytest.mark.parametrize(("text", "call"), BLANK_TEXTS)
async def test_what_is_blank_is_refused_in_agentenvs_words(
    services: Services, embedded_ledger: Ledger, text: str, call: Callable[[Services], Awaitable[object]]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await call(services)
    assert caught.value.detail == text
    assert sent_to(embedded_ledger) == 0


async def test_ids_reach_the_ledger_trimmed_and_rosters_tidy(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await list_node(services)
    asked = note_calls(monkeypatch, embedded_ledger.nodes, "heartbeat")
    roster = (" s1 ", "s2", "", "  ", "s1", "ü\u3000")
    endpoint = P2pEndpoint(" iroh ", " addr ")
    await services.nodes.heartbeat(
        Heartbeat(" node-a ", "\u00a0i", cluster_id=" c ", sandbox_ids=roster, p2p_endpoint=endpoint, endpoint=" ")
    )
    ((sent, _),) = asked
    assert sent == Heartbeat(
        "node-a",
        "i",
        cluster_id="c",
        sandbox_ids=("s1", "s2", "ü"),
        p2p_endpoint=P2pEndpoint("iroh", "addr"),
    )


@pytest.mark.parametrize("roster", [None, ()])
async def test_an_unknown_roster_and_an_empty_one_stay_different(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, roster: tuple[str, ...] | None
) -> None:
    await list_node(services)
    asked = note_calls(monkeypatch, embedded_ledger.nodes, "heartbeat")
    await services.nodes.heartbeat(Heartbeat("node-a", "i", sandbox_ids=roster))
    assert asked[0][0].sandbox_ids == roster


@pytest.mark.parametrize("endpoint", [P2pEndpoint("", "x"), P2pEndpoint("iroh", " "), None])
async def test_half_a_peer_endpoint_is_none(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, endpoint: P2pEndpoint | None
) -> None:
    await list_node(services)
    asked = note_calls(monkeypatch, embedded_ledger.nodes, "heartbeat")
    await services.nodes.heartbeat(Heartbeat("node-a", "i", p2p_endpoint=endpoint))
    assert asked[0][0].p2p_endpoint is None


@pytest.mark.parametrize(
    "snapshot",
    [
        NodeSnapshot(cpu_count=2**32),
        NodeSnapshot(create_fails=2**53),
        NodeSnapshot(reported_at_unix_ms=-1),
        NodeSnapshot(allocated_memory_bytes=2**52, paused_allocated_memory_bytes=2**52),
        NodeSnapshot(sandbox_count=True),
    ],
)
async def test_figures_beyond_what_a_script_can_count_are_refused(services: Services, snapshot: NodeSnapshot) -> None:
    with pytest.raises(InvalidRequest):
        await services.nodes.heartbeat(Heartbeat("a", "i", snapshot=snapshot))


async def test_events_are_checked_one_by_one_and_none_at_all_is_fine(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = note_calls(monkeypatch, embedded_ledger.nodes, "record_events")
    good = SandboxEvent(" s1 ", SandboxEventType.CREATE, 1, 1)
    with pytest.raises(InvalidRequest, match=r"events\.1\.requested_cpu"):
        await services.nodes.record_events("a", "i", [good, replace(good, requested_cpu=2**32)])
    assert await services.nodes.record_events("a", "i", []) == 0
    assert sent_to(embedded_ledger) == 0
    await list_node(services, "a")
    await services.nodes.record_events("a", "i", [good])
    assert asked[0][2] == (replace(good, sandbox_id="s1"),)


async def test_a_key_without_a_hint_is_ignored_whatever_it_holds(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await list_node(services)
    asked = note_calls(monkeypatch, embedded_ledger.placements, "schedule")
    await services.placement.schedule(ScheduleRequest(idempotency_key="not visible"))
    ((request,),) = asked
    assert request.idempotency_key is None


@pytest.mark.parametrize(
    ("template_id", "keys"),
    [
        ("base", 0),
        ("0190a5c2-6f0e-7cc0-8f5e-000000000001", 2),
        ("0190A5C2-6F0E-7CC0-8F5E-000000000001", 0),
        ("0190a5c2-6f0e-7cc0-8f5e-000000000001 ", 0),
    ],
)
async def test_a_canonical_template_names_the_artifacts_it_starts_from(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch, template_id: str, keys: int
) -> None:
    await list_node(services)
    asked = note_calls(monkeypatch, embedded_ledger.placements, "schedule")
    await services.placement.schedule(ScheduleRequest(hint=Hint(HintKind.SANDBOX, template_id=template_id)))
    ((request,),) = asked
    assert len(request.hint.locality) == keys
    assert all(key.startswith(f"snapshot/v1/artifacts/{template_id}/") for key in request.hint.locality)


async def test_locality_keys_are_tidied_and_at_most_thirty_two(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await list_node(services)
    asked = note_calls(monkeypatch, embedded_ledger.placements, "schedule")
    hint = replace(HINT, locality=(" k ", "k", "", "l"))
    await services.placement.schedule(ScheduleRequest(hint=hint))
    ((request,),) = asked
    assert request.hint.locality == ("k", "l")
    with pytest.raises(InvalidRequest, match="too many locality requirements"):
        await services.placement.schedule(ScheduleRequest(hint=replace(HINT, locality=tuple(map(str, range(33))))))


async def test_placements_are_counted_by_strategy_and_outcome(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoNodes):
        await services.placement.schedule(ScheduleRequest(hint=HINT))
    await list_node(services)
    await services.placement.schedule(ScheduleRequest(hint=HINT))
    fail_with(monkeypatch, embedded_ledger, StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable):
        await services.placement.schedule(ScheduleRequest(hint=HINT))
    shown = page(services)
    counted = "agentenv_scheduler_schedule_duration_seconds_count"
    assert f'{counted}{{status="unavailable",strategy="unknown"}} 1.0' in shown
    assert f'{counted}{{status="ok",strategy="round_robin"}} 1.0' in shown
    assert f'{counted}{{status="unavailable",strategy="round_robin"}} 1.0' in shown
    assert 'agentenv_scheduler_refusals_total{reason="no_candidates"} 1.0' in shown
    assert 'agentenv_scheduler_store_errors_total{code="store_unavailable",operation="schedule"} 1.0' in shown
    assert 'agentenv_scheduler_store_errors_total{code="no_nodes"' not in shown


def test_a_refusal_counts_under_the_reason_that_kept_out_the_most_nodes() -> None:
    assert refusal_reason(NoNodes(9, {"unhealthy": 3, "lingering": 5, "excluded": 1})) == "lingering"
    assert refusal_reason(NoNodes(4, {"unhealthy": 2, "lingering": 2})) == "lingering"
    assert refusal_reason(NoNodes(0, {})) == "no_candidates"


async def test_lifecycle_calls_are_counted_by_what_came_of_them(services: Services) -> None:
    await list_node(services)
    decision = await services.placement.schedule(ScheduleRequest(hint=HINT))
    assert decision.reservation is not None
    reservation_id = decision.reservation.reservation_id
    await services.reservations.confirm(reservation_id, "s1")
    await services.reservations.confirm(reservation_id, "s1")
    with pytest.raises(Exception, match="another sandbox"):
        await services.reservations.confirm(reservation_id, "s2")
    with pytest.raises(NotFound):
        await services.reservations.cancel("nobody")
    shown = page(services)
    counted = "agentenv_scheduler_reservation_call_duration_seconds_count"
    for call, result in (
        ("confirm", "done"),
        ("confirm", "replayed"),
        ("confirm", "conflict"),
        ("cancel", "not_found"),
    ):
        assert f'{counted}{{call="{call}",result="{result}"}} 1.0' in shown
    assert 'agentenv_scheduler_replays_total{call="confirm"} 1.0' in shown
    assert 'agentenv_scheduler_conflicts_total{call="confirm"} 1.0' in shown


def test_nodes_beyond_the_cap_are_shown_as_one() -> None:
    metrics = Metrics()
    busy = PendingTotals(cpu_count=2, memory_bytes=3, sandbox_count=1)
    metrics.show(
        LedgerFigures(fleet=FleetTally(pending={f"n{number:04d}": busy for number in range(NODES_SHOWN + 50)}))
    )
    shown = metrics.page().decode()
    assert shown.count("agentenv_scheduler_pending_cpu_count{") == NODES_SHOWN + 1
    assert 'agentenv_scheduler_pending_cpu_count{node="_other"} 100.0' in shown


async def test_the_domains_own_counters_are_read_from_the_ledger(
    services: Services, embedded_ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def counted() -> dict[str, int]:
        groups = {"groups_closed_full": 2, "groups_evicted": 7}
        return {"reservations_expired": 3, "reservations_orphaned": 1, "affinity_warm": 5, "affinity_cold": 4, **groups}

    monkeypatch.setattr(embedded_ledger.settings, "stats", counted)
    await services.overview.refresh()
    shown = page(services)
    assert 'agentenv_scheduler_reservations_total{state="expired"} 3.0' in shown
    assert 'agentenv_scheduler_groups_closed_total{reason="full"} 2.0' in shown
    assert 'agentenv_scheduler_affinity_placements_total{found="warm"} 5.0' in shown
    assert 'agentenv_scheduler_affinity_placements_total{found="cold"} 4.0' in shown
    assert 'agentenv_scheduler_ledger_events_total{event="groups_evicted"} 7.0' in shown
    assert 'agentenv_scheduler_ledger_events_total{event="reservations_orphaned"} 1.0' in shown


async def test_settings_that_conflict_keep_a_replica_from_being_ready(services: Services) -> None:
    outcome = SettingsOutcome("conflict", LedgerSettings(revision=3), "e1", differing=("strategy",))
    services.readiness.note_settings(outcome)
    with pytest.raises(StoreUnusable) as caught:
        await services.readiness.check()
    assert caught.value.facts["settings"]["differing"] == ["strategy"]
    assert "agentenv_scheduler_settings_mismatch 1.0" in page(services)
    services.readiness.note_settings(SettingsOutcome("same", LedgerSettings(revision=3), "e1"))
    assert (await services.readiness.check()).settings["revision"] == 3
    assert "agentenv_scheduler_settings_mismatch 0.0" in page(services)


async def test_a_report_of_an_unlisted_node_is_no_fault_of_the_ledger(services: Services) -> None:
    with pytest.raises(NodeNotListed):
        await services.nodes.heartbeat(Heartbeat("stranger", "i"))
    assert "agentenv_scheduler_store_errors_total{" not in page(services)
