"""What is scarce is spared: a node that has it takes work that does not ask for it only when no other node can."""

from __future__ import annotations

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus, ResourceLoad
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import Admission, LedgerSettings
from scheduler.errors import NoNodes
from scheduler.ledger.ledger import Ledger
from tests.conftest import OpenLedger
from tests.support.recount import assert_ledger_is_sound

GPU = {"gpu": ResourceLoad(total=4)}


async def fleet(ledger: Ledger) -> None:
    """`a` has GPUs, `b` is labelled scarce, `c` is plain; each has four CPUs."""
    for name, labels, resources in (("a", {}, GPU), ("b", {"disk": "nvme"}, {}), ("c", {"zone": "1"}, {})):
        await ledger.nodes.set(name, f"http://{name}:8000", DiscoveryState.ACTIVE, labels=labels)
        snapshot = NodeSnapshot(NodeStatus.READY, 4, 64 * 1024 * MIB)
        await ledger.nodes.heartbeat(Heartbeat(name, "instance", snapshot=snapshot, resources=resources))


async def placed(ledger: Ledger, count: int, **members: object) -> list[str]:
    hint = Hint(HintKind.COLD_SANDBOX, 1, 64, **members)  # type: ignore[arg-type]
    return [(await ledger.placements.schedule(ScheduleRequest(hint=hint))).node.node_id for _ in range(count)]


@pytest.mark.parametrize("strategy", list(Strategy))
async def test_a_node_with_something_scarce_comes_last(open_ledger_on: OpenLedger, strategy: Strategy) -> None:
    ledger = await open_ledger_on(
        LedgerSettings(strategy=strategy, admission=Admission.ALWAYS, resources=("gpu",), scarce=("gpu", "disk"))
    )
    await fleet(ledger)
    assert await placed(ledger, 4) == ["c"] * 4
    explained = await ledger.placements.explain(ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64)))
    assert {node.node_id: node.reason for node in explained.nodes} == {"a": None, "b": None, "c": "insufficient_cpu"}
    assert await placed(ledger, 2, require={"disk": ("nvme",)}) == ["b"] * 2
    assert await placed(ledger, 2, resources={"gpu": 1}) == ["a"] * 2
    assert sorted(await placed(ledger, 4)) == ["a", "a", "b", "b"], "it fits nowhere else"
    with pytest.raises(NoNodes):
        await placed(ledger, 1)
    await assert_ledger_is_sound(ledger)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, resources=("gpu",), scarce=("gpu",))
async def test_explain_ranks_what_is_spared_behind_the_others(ledger: Ledger) -> None:
    await fleet(ledger)
    await placed(ledger, 2, require={"zone": ("1",)})
    explained = await ledger.placements.explain(ScheduleRequest(hint=Hint(HintKind.COLD_SANDBOX, 1, 64)))
    assert [(node.node_id, node.rank) for node in explained.nodes] == [("a", 2), ("b", 0), ("c", 1)]


@pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.RANDOM])
async def test_the_only_plain_node_is_found_behind_many_with_something_scarce(
    open_ledger_on: OpenLedger, strategy: Strategy
) -> None:
    ledger = await open_ledger_on(LedgerSettings(strategy=strategy, scarce=("ssd",)))
    nodes = [NodeAddress(f"node-{number:03}", "http://node", {"ssd": "yes"}) for number in range(200)]
    await ledger.nodes.replace([*nodes, NodeAddress("plain", "http://plain")], ())
    request = ScheduleRequest(Hint(HintKind.COLD_SANDBOX, cpu_count=1, images=("app",)), exclude_nodes=())
    assert {(await ledger.placements.schedule(request)).node.node_id for _ in range(3)} == {"plain"}


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED, scarce=("disk",))
async def test_a_node_that_tells_a_disk_of_nothing_has_none_to_spare(ledger: Ledger) -> None:
    await fleet(ledger)
    snapshot = NodeSnapshot(NodeStatus.READY, 4, 64 * 1024 * MIB)
    for name in ("a", "c"):
        await ledger.nodes.remove(name)
    await ledger.nodes.set("d", "http://d:8000", DiscoveryState.ACTIVE)
    await ledger.nodes.heartbeat(Heartbeat("d", "instance", snapshot=snapshot, resources={"disk": ResourceLoad(0)}))
    assert await placed(ledger, 2) == ["d"] * 2
