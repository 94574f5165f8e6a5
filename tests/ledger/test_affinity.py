"""Affinity in the ledger: what nodes are taken to hold, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from scheduler.domain.limits import MIB
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import BatchRequest, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import AffinitySettings, LedgerSettings
from scheduler.errors import NoNodes
from scheduler.inspection.recount import recount
from scheduler.inspection.repair import repair
from scheduler.ledger.ledger import Ledger
from tests.support.backends import put_settings
from tests.support.index_oracle import Demand, best, fullest, rows_of
from tests.support.recount import assert_ledger_is_sound

KEEPING_TWO = LedgerSettings(strategy=Strategy.LEAST_LOADED, affinity=AffinitySettings(slack=500, keys_per_node=2))


@pytest.fixture
def ledger_settings() -> LedgerSettings:
    return KEEPING_TWO


async def list_node(ledger: Ledger, node_id: str, cpu_count: int = 10) -> None:
    await ledger.nodes.set(node_id, f"http://{node_id}", DiscoveryState.ACTIVE)
    await ledger.nodes.heartbeat(Heartbeat(node_id, "one", snapshot=NodeSnapshot(NodeStatus.READY, cpu_count, 2**36)))


def asking(image: str, cpu_count: int = 1) -> ScheduleRequest:
    return ScheduleRequest(Hint(HintKind.COLD_SANDBOX, cpu_count, 64, images=(image,)))


async def place(ledger: Ledger, *images: str) -> str:
    return "".join([(await ledger.placements.schedule(asking(image))).node.node_id for image in images])


async def held(ledger: Ledger, node_id: str) -> list[str]:
    """The latest last."""
    found = await ledger.client.command("ZRANGE", ledger.keys.node_warm(node_id), 0, -1)
    return [key.decode().removeprefix("image:") for key in found]


async def test_a_node_is_taken_to_hold_what_it_was_given_last_until_it_leaves(ledger: Ledger) -> None:
    await list_node(ledger, "a")
    await place(ledger, "one", "two", "one", "three")
    assert await held(ledger, "a") == ["one", "three"]
    assert await ledger.settings.stats() == {"affinity_warm": 1, "affinity_cold": 3}
    await ledger.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1, 64)))
    assert await ledger.settings.stats() == {"affinity_warm": 1, "affinity_cold": 3}, "nothing to hold"
    assert not await ledger.client.command("EXISTS", ledger.keys.warm("image:two"))
    await assert_ledger_is_sound(ledger)
    await ledger.nodes.remove("a")
    assert await ledger.client.command("KEYS", ledger.keys.named("*warm*")) == []
    await assert_ledger_is_sound(ledger)


async def test_a_batch_sees_what_its_own_creations_warmed_and_leaves_nothing_when_it_is_undone(ledger: Ledger) -> None:
    await list_node(ledger, "a")
    await list_node(ledger, "b")
    assert await place(ledger, "old", "older") == "ab"
    requests = (*[asking("app")] * 3, asking("db"), asking("app"))
    placed = (await ledger.placements.schedule_batch(BatchRequest(requests))).placed
    assert "".join(each.node.node_id for each in placed) == "aaaba"
    assert await ledger.settings.stats() == {"affinity_warm": 3, "affinity_cold": 4}
    before = [await held(ledger, "a"), await held(ledger, "b")]
    with pytest.raises(NoNodes):
        await ledger.placements.schedule_batch(
            BatchRequest((asking("new"), asking("newer"), asking("old"), asking("app", 9)), all_or_none=True)
        )
    assert [await held(ledger, "a"), await held(ledger, "b")] == before
    assert await ledger.settings.stats() == {"affinity_warm": 3, "affinity_cold": 4, "refusals": 1}
    assert not await ledger.client.command("EXISTS", ledger.keys.warm("image:new"))
    await assert_ledger_is_sound(ledger)


@pytest.mark.parametrize("seed", range(3))
async def test_every_choice_is_that_of_a_comparison_of_all_nodes(ledger: Ledger, seed: int) -> None:
    """Of the warm nodes that fit the fullest within the share, else the least loaded within the slack, else whoever it
    would be without affinity."""
    chance = Random(f"affinity {seed}")
    slack, share = chance.choice([0, 100, 300]), [0, 500, 0][seed]
    wanted = replace(KEEPING_TWO, affinity=AffinitySettings(slack, 2), fill_to=share, revision=1)
    await put_settings(ledger, wanted)
    for number in range(6):
        await list_node(ledger, f"n{number}", chance.choice([8, 10, 16]))
    warm: dict[str, list[str]] = {}
    seen: Counter[str] = Counter()
    for _ in range(40):
        image, cpus = chance.choice("abcd"), chance.choice([1, 1, 2])
        found = await ledger.client.command("HGETALL", ledger.keys.loads)
        rows = rows_of({found[at].decode(): found[at + 1].decode() for at in range(0, len(found), 2)})
        demand = Demand(cpus, 64 * MIB)
        least = best(rows, demand)
        if not least:
            break
        holding = [row for row in rows if image in warm.get(row.node_id, []) and row.obstacle(demand) is None]
        most = least[0].pressure(demand) + slack / 1000 + 2**-40
        filled = [row for row in holding if share and row.pressure(demand) <= share / 1000]
        full = max((row.pressure(demand) for row in filled), default=None)
        within = best([row for row in holding if row.pressure(demand) <= most], demand)
        without = (fullest(rows, demand, share / 1000) if share else []) or least
        expected = [row for row in filled if row.pressure(demand) == full] or within or without
        node_id = (await ledger.placements.schedule(asking(image, cpus))).node.node_id
        assert node_id in {row.node_id for row in expected}, f"{wanted}: {image} on {node_id}, not one of {expected}"
        seen["warm" if node_id in {row.node_id for row in holding} else "cold"] += 1
        seen["not without it"] += node_id not in {row.node_id for row in without}
        warm[node_id] = [*(key for key in warm.get(node_id, []) if key != image), image][-2:]
    assert min(seen["warm"], seen["cold"], seen["not without it"] or slack == 0) > 0, seen


async def test_explain_ranks_a_warm_node_first_that_is_chosen_before_a_less_loaded_one(ledger: Ledger) -> None:
    await list_node(ledger, "a")
    await list_node(ledger, "b")
    assert await place(ledger, "app", "app") == "aa"
    found = await ledger.placements.explain(asking("app"))
    assert found.node is not None
    assert [found.node.node_id, *(node.rank for node in found.nodes)] == ["a", 0, 1]
    assert [node.rank for node in (await ledger.placements.explain(asking("other"))).nodes] == [1, 0]


async def test_nothing_is_kept_while_affinity_is_off(ledger: Ledger) -> None:
    await list_node(ledger, "a")
    await place(ledger, "app")
    await put_settings(ledger, replace(KEEPING_TWO, affinity=AffinitySettings(), revision=1))
    await place(ledger, "other")
    assert await held(ledger, "a") == ["app"]
    assert await ledger.settings.stats() == {"affinity_cold": 1}
    await assert_ledger_is_sound(ledger)


async def test_what_a_stopped_script_left_is_found_and_repaired(ledger: Ledger) -> None:
    await list_node(ledger, "a")
    await place(ledger, "kept", "lost")
    keys = ledger.keys
    await ledger.client.command("ZREM", keys.warm("image:lost"), "a")
    await ledger.client.command("ZADD", keys.warm("image:strange"), 7, "a", 7, "nobody")
    await ledger.client.command("ZADD", keys.node_warm("gone"), 7, "image:kept")
    found = sorted(await recount(ledger))
    assert [each.split(", kept")[0] for each in found] == [
        "node gone is not listed, and nothing will ever clear its warm",
        "warm image:kept was given to node gone at 7",
        "warm image:lost was given to node a at 3",
        "warm image:strange was given to node a at nothing",
        "warm image:strange was given to node nobody at nothing",
    ]
    assert not (await repair(ledger, apply=True)).left
    assert await held(ledger, "a") == ["kept", "lost"]
    assert await ledger.client.command("ZRANGE", keys.warm("image:lost"), 0, -1) == [b"a"]
    assert not await ledger.client.command("EXISTS", keys.warm("image:strange"))
