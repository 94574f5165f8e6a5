"""Every single command of the scripts beside placements fails once: artifacts, CPU templates, settings, rosters in
slices, refusing nodes, and the list of nodes. Nothing is lost, told wrongly, or left that no repair finds."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from scheduler.domain.node import DiscoveryState, Heartbeat, MachineInfo, NodeAddress, P2pEndpoint
from scheduler.domain.placement import Hint, HintKind, Strategy
from scheduler.domain.reservation import CancelCause
from scheduler.domain.sandbox import ArtifactKey, Template
from scheduler.ledger import roster
from scheduler.ledger.configured import ConfiguredBy
from tests.conftest import OpenLedger
from tests.lifecycle.cluster import BINDING_TTL_MS, REPORT_TTL_MS, address
from tests.lifecycle.half_way import NODES, Flow, Story, settings_of, stop_everywhere
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock

Telling = Callable[[Story], Awaitable[object]]

# Artifacts

CLUSTER, BACKEND = "cluster", "http"


def artifact(key: str) -> ArtifactKey:
    return ArtifactKey(CLUSTER, BACKEND, key)


async def tell(story: Story, node_id: str, cpu_config: str = "", cluster_id: str = CLUSTER) -> str:
    """A report with what is told beside figures and roster; the CPU template that it is answered."""
    answer = await story.cluster.services.nodes.heartbeat(
        Heartbeat(
            node_id,
            "run-1",
            cluster_id,
            machine_info=MachineInfo(cpu_config_json=cpu_config),
            snapshot=story.cluster.figures[node_id],
            sandbox_ids=story.running[node_id],
            p2p_endpoint=P2pEndpoint(BACKEND, f"{node_id}:1"),
        )
    )
    return answer.cpu_config_json


async def offered(story: Story) -> None:
    """Both nodes offer two artifacts."""
    for node_id in NODES:
        await tell(story, node_id)
        for key in ("one", "two"):
            await story.ledger.artifacts.record(artifact(key), node_id)


async def parked(story: Story) -> None:
    """Node `a` was taken off, and what it offered is not cleared away yet; it is back and offers one of it."""
    await offered(story)
    await story.ledger.nodes.unregister("a", "run-1")
    await tell(story, "a")
    await story.ledger.artifacts.record(artifact("one"), "a")


async def providers(story: Story, key: str) -> set[str]:
    for node_id in [node.node_id for node in await story.ledger.nodes.list()]:
        await tell(story, node_id)
    return {node_id for node_id, _ in await story.ledger.artifacts.lookup(artifact(key))}


def serves(key: str, *node_ids: str) -> Telling:
    async def holds(story: Story) -> None:
        assert await providers(story, key) == set(node_ids)

    return holds


FEW = {"AT_ONCE": 1}
ARTIFACTS = [
    Flow("record an artifact", "record_artifact", lambda s: s.ledger.artifacts.record(artifact("new"), "a"), offered,
         holds=serves("new", "a")),
    Flow("record one beyond the capacity", "record_artifact",
         lambda s: s.ledger.artifacts.record(artifact("new"), "a"), offered, holds=serves("one"),
         settings={"artifact_store_capacity": 2}),
    Flow("record one beyond the capacity that many provide", "record_artifact",
         lambda s: s.ledger.artifacts.record(artifact("new"), "a"), offered, holds=serves("one"),
         settings={"artifact_store_capacity": 2}, bounds=FEW),
    Flow("record one while others are cleared away", "record_artifact",
         lambda s: s.ledger.artifacts.record(artifact("new"), "a"), parked, holds=serves("two", "b"), bounds=FEW),
    Flow("look an artifact up", "lookup_artifact", lambda s: s.ledger.artifacts.lookup(artifact("one")), parked,
         holds=serves("one", "a", "b"), bounds=FEW),
    Flow("forget an artifact", "forget_artifact", lambda s: s.ledger.artifacts.forget(artifact("one"), "a"), offered,
         holds=serves("one", "b")),
]  # fmt: skip

# CPU templates


def cpu_config(bitmap: int) -> str:
    entry = {"leaf": "0x1", "subleaf": "0x0", "flags": 0}
    entry["modifiers"] = [{"register": "eax", "bitmap": f"0b{bitmap:b}"}]
    return json.dumps({"kvm_capabilities": [], "cpuid_modifiers": [entry], "msr_modifiers": []})


async def one_told(story: Story) -> None:
    await tell(story, "a", cpu_config(15))


async def both_told(story: Story) -> None:
    for node_id in NODES:
        await tell(story, node_id, cpu_config(15))


async def agreed(story: Story) -> None:
    """Both nodes are told one template, whoever tells its own next."""
    await tell(story, "a", cpu_config(15))
    await tell(story, "b", cpu_config(7))
    told = {await tell(story, node_id, cpu_config(config)) for node_id, config in (("a", 15), ("b", 7))}
    assert [json.loads(text)["cpuid_modifiers"][0]["modifiers"][0]["bitmap"][-5:] for text in told] == ["00111"]


CPU_CONFIGS = [
    Flow("tell a first CPU template", "report_cpu_config", lambda s: tell(s, "b", cpu_config(15)), one_told,
         holds=agreed, places=False),
    Flow("tell another CPU template", "report_cpu_config", lambda s: tell(s, "b", cpu_config(7)), both_told,
         holds=agreed, places=False),
    Flow("move to another cluster", "report_cpu_config", lambda s: tell(s, "b", "", "elsewhere"), both_told,
         holds=agreed, places=False),
    Flow("install a common CPU template", "install_cpu_config", lambda s: tell(s, "b", cpu_config(15)), one_told,
         holds=agreed, places=False),
]  # fmt: skip

# Settings


def puts(**changes: object) -> Telling:
    async def put(story: Story) -> None:
        wanted = replace(settings_of(Flow("", "", put)), revision=1, **changes)  # type: ignore[arg-type]
        await put_settings(story.ledger, wanted)
        while await story.ledger.settings.refresh():
            pass

    return put


def in_force(**changes: object) -> Telling:
    async def holds(story: Story) -> None:
        found = await story.ledger.settings.get()
        assert found is not None
        for name, value in changes.items():
            assert getattr(found[0], name) == value

    return holds


CHANGED = {"overcommit_cpu": 500, "strategy": Strategy.GROUPED_ROUND_ROBIN, "cold_default_cpu_count": 1}


async def placed(story: Story) -> None:
    await story.place("first")


SETTINGS = [
    Flow("change the settings", "put_settings", puts(**CHANGED), placed, holds=in_force(**CHANGED)),
    Flow("bring rows to other settings", "refresh_rows", puts(**CHANGED), placed, holds=in_force(**CHANGED)),
]

# Rosters in slices

MANY = tuple(f"s{number}" for number in range(1, 6))


async def many_run(story: Story) -> None:
    """One of them is a confirmed reservation's; the others nobody told of."""
    reservation = await story.place("first", exclude_nodes=("b",))
    await story.cluster.confirm(reservation, "s2")
    story.running["a"], story.reported_cpus["a"] = MANY, 2
    story.cluster.figures["a"] = replace(story.cluster.figures["a"], sandbox_count=len(MANY))


async def many_ran(story: Story) -> None:
    await many_run(story)
    await story.report()
    story.running["a"], story.reported_cpus["a"] = (), 0


def listed(*sandbox_ids: str) -> Telling:
    async def holds(story: Story) -> None:
        await story.report()
        assert [s for s in MANY if await story.cluster.node_of(s) == "a"] == list(sandbox_ids)

    return holds


ROSTERS = [
    Flow("the first slice of a roster", "apply_roster", lambda s: s.report(), many_run, holds=listed(*MANY)),
    Flow("the last slice of a roster", "apply_roster", lambda s: s.report(), many_run, holds=listed(*MANY), run=3),
    Flow("the last slice of an end", "apply_roster", lambda s: s.report(), many_ran, holds=listed(), run=3),
    Flow("a report before its slices", "record_heartbeat", lambda s: s.report(), many_run, holds=listed(*MANY), run=2),
]  # fmt: skip

# Nodes that refuse


async def refusals(story: Story, times: int) -> None:
    for number in range(times):
        made = await story.place(
            f"refused-{number}", 0, exclude_nodes=("b",), hint=Hint(HintKind.COLD_SANDBOX, images=("app",))
        )
        await story.cluster.cancel(made, cause=CancelCause.NODE_REFUSED)


async def third_placed(story: Story) -> None:
    await refusals(story, 2)
    await story.place("first", exclude_nodes=("b",))


async def refuse_first(story: Story) -> None:
    made = next(r for r in story.acknowledged.values() if r.cpu_count == 2)
    await story.cluster.cancel(made, cause=CancelCause.NODE_REFUSED)


async def avoided(story: Story) -> None:
    await refusals(story, 3)
    assert not (await story.ledger.nodes.get("a")).eligible


async def readmitted(story: Story) -> None:
    await avoided(story)
    story.cluster.wait(1_000)


async def tried(story: Story) -> None:
    await readmitted(story)
    await story.place("first", exclude_nodes=("b",))


async def confirm_first(story: Story) -> None:
    made = next(r for r in story.acknowledged.values() if r.cpu_count == 2)
    await story.cluster.confirm(made)


async def fail(story: Story) -> None:
    """The node tells of failures, as often as it is asked."""
    figures = story.cluster.figures["a"]
    await story.cluster.report("a", story.running["a"], create_fails=figures.create_fails + 3)


async def is_watched_or_free(story: Story) -> None:
    """It is avoided for at most the longest time, and then may be chosen."""
    story.cluster.wait(30_000)
    await story.report()
    story.cluster.wait(1_000)
    reason = (await story.ledger.nodes.get("a")).ineligible_reason
    assert reason in (None, "insufficient_cpu"), reason


REFUSING = [
    Flow("a third refusal", "cancel_reservation", refuse_first, third_placed, holds=is_watched_or_free),
    Flow("a refusal of the one that tries", "cancel_reservation", refuse_first, tried, holds=is_watched_or_free),
    Flow("a creation by the one that tries", "confirm_reservation", confirm_first, tried, holds=is_watched_or_free),
    Flow("try a node that refused", "schedule_sandbox", lambda s: s.place("acted", exclude_nodes=("b",)), readmitted,
         holds=is_watched_or_free),
    Flow("try it in turn", "schedule_sandbox", lambda s: s.place("acted"), readmitted, Strategy.ROUND_ROBIN,
         holds=is_watched_or_free),
    Flow("tell of failures", "record_heartbeat", fail, placed, holds=is_watched_or_free),
    Flow("tell of more failures", "record_heartbeat", fail, tried, holds=is_watched_or_free),
]  # fmt: skip

# The list of nodes


async def with_everything(story: Story) -> None:
    """A node with a reservation that waits, one that is listed, artifacts and a CPU template; it was avoided."""
    await avoided(story)
    await both_told(story)
    await offered(story)
    confirmed = await story.place("listed", 1, exclude_nodes=("b",))
    await story.cluster.confirm(confirmed)
    story.running["a"], story.reported_cpus["a"] = ("s1",), 1
    await story.report()
    await story.place("first", exclude_nodes=("b",))
    await story.cluster.record("s2")


async def unregister(story: Story) -> None:
    story.running["a"], story.reported_cpus["a"] = (), 0
    await story.ledger.nodes.unregister("a", "run-1")


async def remove(story: Story) -> None:
    story.running["a"], story.reported_cpus["a"] = (), 0
    await story.ledger.nodes.remove("a")


async def removed(story: Story) -> None:
    await with_everything(story)
    await remove(story)


async def removed_for_good(story: Story) -> None:
    await removed(story)
    story.cluster.wait(REPORT_TTL_MS)


async def silent_for_good(story: Story) -> None:
    await with_everything(story)
    story.running["a"], story.reported_cpus["a"] = (), 0
    story.cluster.wait(REPORT_TTL_MS + BINDING_TTL_MS)
    await story.cluster.report("b")


async def back(story: Story) -> None:
    await story.cluster.discover("a")


async def change_list(story: Story) -> None:
    story.running["a"], story.reported_cpus["a"] = (), 0
    await story.ledger.nodes.replace([NodeAddress("b", "http://b:9000"), address("c")], [])


async def list_is_changed(story: Story) -> None:
    listed_now = {node.node_id: node.endpoint for node in await story.ledger.nodes.list()}
    assert listed_now == {"b": "http://b:9000", "c": "http://c:8000"}


async def is_off_the_list(story: Story) -> None:
    assert [node.node_id for node in await story.ledger.nodes.list()] == ["b"]
    assert await providers(story, "one") == {"b"}


async def is_on_the_list(story: Story) -> None:
    assert [node.node_id for node in await story.ledger.nodes.list()] == ["a", "b"]
    await story.report()
    reason = (await story.ledger.nodes.get("a")).ineligible_reason
    assert reason in (None, "insufficient_cpu"), reason


async def is_forgotten(story: Story) -> None:
    assert await story.cluster.node_of("s1") is None
    assert "a" not in {node_id for node_id, _ in await story.ledger.artifacts.lookup(artifact("one"))}


async def drain(story: Story) -> None:
    await story.cluster.discover("a", DiscoveryState.LINGERING)


async def drains(story: Story) -> None:
    await story.report()
    assert not (await story.ledger.nodes.get("a")).eligible


async def configure_templates(story: Story, revision: int, *template_ids: str) -> None:
    templates = {template_id: Template(template_id, 2, 64) for template_id in template_ids}
    await story.ledger.templates.configure(templates, ConfiguredBy("replica", revision))


async def templates_configured(story: Story) -> None:
    await placed(story)
    await configure_templates(story, 1, "base", "gone")


LISTS = [
    Flow("unregister", "unregister_node", unregister, with_everything, holds=is_forgotten, reports_first=True),
    Flow("unregister one that offers much", "unregister_node", unregister, with_everything, holds=is_forgotten,
         reports_first=True, bounds=FEW),
    Flow("take a node off the list", "set_nodes", remove, with_everything, holds=is_off_the_list),
    Flow("bring a node back", "set_nodes", back, removed, holds=is_on_the_list, reports_first=True),
    Flow("bring a node back too late", "set_nodes", back, removed_for_good, holds=is_on_the_list, reports_first=True),
    Flow("drain a node", "set_nodes", drain, with_everything, holds=drains),
    Flow("change the list", "set_nodes", change_list, with_everything, holds=list_is_changed, places=False),
    Flow("sweep what a removed node had", "sweep_ledger", lambda s: s.cluster.sweep(), removed_for_good),
    Flow("sweep what a silent node had", "sweep_ledger", lambda s: s.cluster.sweep(), silent_for_good),
    Flow("declare a template", "put_template", lambda s: s.ledger.templates.put(Template("t", 2, 64)), placed,
         places=False),
    Flow("a template leaves the file", "configure_templates", lambda s: configure_templates(s, 2, "base"),
         templates_configured, places=False),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "flow", [*ARTIFACTS, *CPU_CONFIGS, *SETTINGS, *ROSTERS, *REFUSING, *LISTS], ids=lambda flow: flow.name
)
async def test_every_command_may_fail_once(
    flow: Flow,
    open_ledger_on: OpenLedger,
    backend: Backend,
    clock: VirtualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every fifth command, and with SCHEDULER_TEST_HYPOTHESIS=long each one."""
    if flow in ROSTERS:
        monkeypatch.setattr(roster, "SLICE", 2)
        monkeypatch.setattr(roster, "WHOLE_MOST", 2)
    step = 1 if os.environ.get("SCHEDULER_TEST_HYPOTHESIS") in {"long", "soak"} else 5
    step *= 1 if backend.name == "real" else 5
    await stop_everywhere(flow, open_ledger_on, backend, clock, step=step, callers=(True, False))
