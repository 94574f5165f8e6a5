"""When a node is sent its cluster's common CPU template, and what may not take it away."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from scheduler.domain.node import Heartbeat, HeartbeatResult, MachineInfo, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import StoreUnavailable
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from scheduler.service.cpu_configs import CpuConfigs
from tests.conftest import OpenLedger
from tests.support.backends import Backend
from tests.support.clock import VirtualClock


def config(eax: int = 0b1111, *capabilities: str) -> str:
    register = {"register": "eax", "bitmap": f"0b{eax:b}"}
    entry = {"leaf": "0x1", "subleaf": "0x0", "flags": 0, "modifiers": [register]}
    return json.dumps({"kvm_capabilities": capabilities, "cpuid_modifiers": [entry], "msr_modifiers": []})


class Nodes:
    """Nodes as the service layer meets them, all over one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.nodes = build_services(ledger).nodes

    async def listed(self, *node_ids: str) -> None:
        await self.nodes.replace([NodeAddress(node_id, f"http://{node_id}:8000") for node_id in node_ids], [])

    async def report(self, node_id: str, text: str | None = "", cluster: str = "c1") -> Any:
        """What the answer carries, read; None for nothing. `text` None: no machine_info at all."""
        heartbeat = Heartbeat(
            node_id,
            f"svc-{node_id}",
            cluster_id=cluster,
            machine_info=None if text is None else MachineInfo(cpu_config_json=text),
            snapshot=NodeSnapshot(status=NodeStatus.READY),
        )
        answer = (await self.nodes.heartbeat(heartbeat, None)).cpu_config_json
        return json.loads(answer) if answer else None


def eax_of(template: Any) -> int:
    return int(template["cpuid_modifiers"][0]["modifiers"][0]["bitmap"], 2)


@pytest.fixture
def nodes(ledger: Ledger) -> Nodes:
    return Nodes(ledger)


async def test_the_last_text_completes_the_cluster_and_the_others_learn_it_next(nodes: Nodes) -> None:
    await nodes.listed("a", "b")
    assert eax_of(await nodes.report("a", config(0b1110))) == 0b1110, "alone, a is the whole cluster"
    assert eax_of(await nodes.report("b", config(0b0111))) == 0b0110
    assert eax_of(await nodes.report("a")) == 0b0110


async def test_an_observed_node_without_text_blocks_its_cluster_until_it_leaves(nodes: Nodes) -> None:
    await nodes.listed("a", "b")
    await nodes.report("b", None)
    assert await nodes.report("a", config()) is None
    assert await nodes.report("a", config()) is None, "sending it again changes nothing"
    await nodes.listed("a")
    assert await nodes.report("a") is not None


async def test_a_node_that_stops_sending_its_text_has_got_the_answer(nodes: Nodes) -> None:
    await nodes.listed("a")
    assert await nodes.report("a", config()) is not None
    assert await nodes.report("a", config()) is not None, "it did not get it: it sends its text again"
    assert await nodes.report("a") is None


async def test_others_are_sent_it_for_a_minute_because_they_never_say_that_they_got_it(
    nodes: Nodes, clock: VirtualClock
) -> None:
    await nodes.listed("a", "b")
    await nodes.report("a", config())
    await nodes.report("b", config(0b0111))
    for _ in range(12):
        assert await nodes.report("a") is not None
        clock.advance(5_000)
    clock.advance(1)
    assert await nodes.report("a") is None
    assert await nodes.report("b") is None


async def test_a_node_that_was_away_for_longer_is_still_sent_it_twice(nodes: Nodes, clock: VirtualClock) -> None:
    await nodes.listed("a", "b")
    await nodes.report("a", config())
    await nodes.report("b", config(0b0111))
    clock.advance(600_000)
    assert [await nodes.report("a") is not None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("how", ["flap", "unregister"])
async def test_a_node_that_comes_back_blocks_nobody(nodes: Nodes, clock: VirtualClock, how: str) -> None:
    await nodes.listed("a", "b")
    await nodes.report("a", config(0b1110))
    await nodes.report("b", config(0b0111))
    if how == "flap":
        await nodes.listed("b")
    else:
        await nodes.nodes.unregister("a", "svc-a")
    assert eax_of(await nodes.report("b")) == 0b0111, "without a, b is the whole cluster"
    await nodes.listed("a", "b")
    clock.advance(3_600_000)
    assert eax_of(await nodes.report("a")) == 0b0110, "a sends no text, but it is known"
    assert eax_of(await nodes.report("b")) == 0b0110


async def test_what_a_departed_node_sent_is_forgotten_after_a_day(nodes: Nodes, backend: Backend) -> None:
    await nodes.listed("a")
    await nodes.report("a", config())
    await nodes.listed()
    client = backend.client()
    kept = [key async for key in client.scan_iter("*cpu_config*")]
    assert [key.split("}:", 1)[1] for key in kept] == ["node:a:cpu_config"]
    assert 86_000_000 < await client.pttl(kept[0]) <= 86_400_000
    await nodes.listed("a")
    await nodes.report("a")
    assert await client.pttl(kept[0]) == -1
    await client.aclose()


async def test_every_replica_and_the_next_one_know_it(open_ledger_on: OpenLedger) -> None:
    first = Nodes(await open_ledger_on(LedgerSettings()))
    second = Nodes(await open_ledger_on())
    await first.listed("a", "b")
    await first.report("a", config(0b1110))
    assert eax_of(await second.report("b", config(0b0111))) == 0b0110
    third = Nodes(await open_ledger_on())
    assert eax_of(await third.report("a")) == 0b0110


async def test_order_and_spelling_follow_the_smallest_node_id_whoever_reports_first(nodes: Nodes) -> None:
    await nodes.listed("a", "b")
    await nodes.report("b", config().replace("0x1", "0x01"))
    template = await nodes.report("a", config())
    assert template["cpuid_modifiers"][0]["leaf"] == "0x1"


async def test_equal_texts_are_read_once(nodes: Nodes, ledger: Ledger) -> None:
    names = [f"n{number:03d}" for number in range(50)]
    await nodes.listed(*names)
    for name in names:
        await nodes.report(name, config(0b1100 if name == "n049" else 0b1111))
    assert eax_of(await nodes.report("n000")) == 0b1100
    client = ledger.client
    counts = await client.command("HVALS", ledger.keys.cpu_config_counts("c1"))
    assert sorted(map(int, counts)) == [1, 49]


async def test_clusters_are_apart_and_a_node_that_moves_leaves_its_old_one(nodes: Nodes) -> None:
    await nodes.listed("a", "b")
    await nodes.report("a", config(0b1110), "x")
    assert await nodes.report("b", "", "y") is None
    assert await nodes.report("b", config(0b0111), "y") is not None
    assert eax_of(await nodes.report("b", config(0b0111), "x")) == 0b0110
    assert eax_of(await nodes.report("b", config(0b0111), "y:counts")) == 0b0111
    assert eax_of(await nodes.report("a", "", "x")) == 0b1110


async def test_a_text_that_cannot_be_read_sends_nothing_until_it_is_corrected(nodes: Nodes) -> None:
    await nodes.listed("a", "b")
    await nodes.report("a", config(0b1110))
    assert await nodes.report("b", "{broken") is None
    assert await nodes.report("a") is None
    assert eax_of(await nodes.report("b", config(0b0111))) == 0b0110
    assert eax_of(await nodes.report("a")) == 0b0110


async def test_a_report_with_a_text_succeeds_only_when_the_ledger_has_it() -> None:
    class Failing:
        async def report(self, *_: Any) -> Any:
            raise StoreUnavailable("refused")

    service = CpuConfigs(Failing())  # type: ignore[arg-type]
    told = Heartbeat("a", "i", machine_info=MachineInfo(cpu_config_json=config()))
    with pytest.raises(StoreUnavailable):
        await service.after_heartbeat(told, 1)
    assert await service.after_heartbeat(Heartbeat("a", "i"), 1) == ""


async def test_an_older_report_that_arrives_late_changes_nothing(ledger: Ledger, nodes: Nodes) -> None:
    await nodes.listed("a")
    for _ in range(2):
        await nodes.report("a", config(0b0011))
    late = Heartbeat("a", "svc-a", cluster_id="c1", machine_info=MachineInfo(cpu_config_json=config(0b1100)))
    assert await CpuConfigs(ledger.cpu_configs).after_heartbeat(late, 1) == ""
    assert eax_of(await nodes.report("a", config(0b0011))) == 0b0011


async def test_reports_at_the_same_time_come_out_as_one_template(open_ledger_on: OpenLedger) -> None:
    ledger = await open_ledger_on(LedgerSettings())
    replicas = [Nodes(ledger), Nodes(await open_ledger_on())]
    names = [f"n{number:02d}" for number in range(20)]
    await replicas[0].listed(*names)
    reports = (
        replicas[number % 2].report(name, config(0b11111 & ~(1 << number % 3))) for number, name in enumerate(names)
    )
    await asyncio.gather(*reports)
    assert {
        eax_of(await replicas[0].report(name, config(0b11111 & ~(1 << number % 3))))
        for number, name in enumerate(names)
    } == {0b11000}


async def test_the_answer_of_the_node_service_carries_it(nodes: Nodes) -> None:
    await nodes.listed("a")
    heartbeat = Heartbeat("a", "i", machine_info=MachineInfo(cpu_config_json=config()))
    result = await nodes.nodes.heartbeat(heartbeat, None)
    assert isinstance(result, HeartbeatResult)
    assert result.cpu_config_json
