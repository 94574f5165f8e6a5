"""What a create from a template is projected with: declared, learned, configured – or only counted."""

from __future__ import annotations

import pytest

from scheduler.domain.placement import Hint, HintKind, Strategy
from scheduler.domain.sandbox import Template
from scheduler.errors import NoNodes, NotFound
from tests.lifecycle.cluster import MIB, Cluster, event

LEARN = pytest.mark.ledger_settings(templates_learn=True)


async def test_a_known_template_is_projected_in_full(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.services.templates.put(Template("base", 3, 2048))
    reservation = await cluster.place_template("base")
    assert (reservation.cpu_count, reservation.memory_bytes) == (3, 2048 * MIB)
    assert await cluster.pending() == (3, 2048, 1)


async def test_an_unknown_template_is_only_counted(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place_template("mystery")
    assert await cluster.pending() == (0, 0, 1)


async def test_a_deleted_template_is_unknown_again(cluster: Cluster) -> None:
    await cluster.add()
    templates = cluster.services.templates
    await templates.put(Template("base", 3, 2048))
    await templates.delete("base")
    with pytest.raises(NotFound):
        await templates.delete("base")
    await cluster.place_template("base")
    assert await cluster.pending() == (0, 0, 1)


async def test_a_change_touches_no_reservation_that_was_made_before(cluster: Cluster) -> None:
    await cluster.add()
    templates = cluster.services.templates
    await templates.put(Template("base", 3, 2048))
    reservation = await cluster.place_template("base")
    await templates.put(Template("base", 1, 512))
    await cluster.cancel(reservation)
    assert await cluster.pending() == (0, 0, 0)
    await cluster.place_template("base")
    assert await cluster.pending() == (1, 512, 1)


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_an_unknown_template_is_refused_only_by_a_node_that_is_full(cluster: Cluster) -> None:
    await cluster.add(cpu_count=4, memory_mb=8192)
    await cluster.place(3, 1024)
    await cluster.place_template("mystery")
    await cluster.place(1, 1024)
    with pytest.raises(NoNodes) as refusal:
        await cluster.place_template("mystery")
    assert refusal.value.reasons == {"insufficient_cpu": 1}


@pytest.mark.ledger_settings(strategy=Strategy.LEAST_LOADED)
async def test_a_known_template_is_refused_where_it_does_not_fit(cluster: Cluster) -> None:
    await cluster.add(cpu_count=4, memory_mb=8192)
    await cluster.services.templates.put(Template("base", 3, 2048))
    await cluster.place_template("base")
    with pytest.raises(NoNodes):
        await cluster.place_template("base")


@LEARN
async def test_the_event_of_a_sandbox_placed_from_a_template_teaches_its_size(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place_template("base")
    await cluster.tell("a", event("create", "s1", 2, 1024))
    assert await cluster.services.templates.get("base") == Template("base", 2, 1024, "learned")
    await cluster.place_template("base")
    assert await cluster.pending() == (2, 1024, 2)


@LEARN
async def test_the_event_teaches_also_when_it_comes_after_the_confirm(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.confirm(await cluster.place_template("base"))
    await cluster.tell("a", event("create", "s1", 2, 1024))
    assert (await cluster.services.templates.get("base")).source == "learned"


@LEARN
async def test_a_later_event_corrects_what_was_learned_and_a_person_has_the_last_word(cluster: Cluster) -> None:
    await cluster.add()
    templates = cluster.services.templates
    for number, (cpu_count, memory_mb) in enumerate([(2, 1024), (4, 2048)]):
        reservation = await cluster.place_template("base")
        await cluster.confirm(reservation, f"s{number}")
        await cluster.tell("a", event("create", f"s{number}", cpu_count, memory_mb))
        assert await templates.get("base") == Template("base", cpu_count, memory_mb, "learned")
    await templates.put(Template("base", 1, 512))
    await cluster.confirm(await cluster.place_template("base"), "s9")
    await cluster.tell("a", event("create", "s9", 8, 8192))
    assert await templates.get("base") == Template("base", 1, 512, "declared")


@LEARN
async def test_forks_and_cold_sandboxes_teach_nothing(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place_template("base")
    await cluster.tell("a", event("fork", "child", 2, 1024))
    await cluster.confirm(await cluster.place(), "cold")
    await cluster.tell("a", event("create", "cold", 2, 4096))
    page, _ = await cluster.services.templates.list()
    assert page == ()


async def test_nothing_is_learned_unless_asked_for(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place_template("base")
    await cluster.tell("a", event("create", "s1", 2, 1024))
    with pytest.raises(NotFound):
        await cluster.services.templates.get("base")


@pytest.mark.ledger_settings(cold_default_cpu_count=2, cold_default_memory_mb=512)
@pytest.mark.parametrize(
    ("cpu_count", "memory_mb", "held"),
    [(0, 0, (2, 512, 1)), (1, 0, (1, 512, 1)), (0, 1024, (2, 1024, 1)), (1, 1024, (1, 1024, 1))],
)
async def test_cold_defaults_stand_in_for_what_a_cold_request_omits(
    cluster: Cluster, cpu_count: int, memory_mb: int, held: tuple[int, int, int]
) -> None:
    await cluster.add()
    await cluster.place(cpu_count, memory_mb)
    assert await cluster.pending() == held


@pytest.mark.ledger_settings(cold_default_cpu_count=2, cold_default_memory_mb=512)
async def test_cold_defaults_say_nothing_of_templates(cluster: Cluster) -> None:
    await cluster.add()
    await cluster.place(hint=Hint(HintKind.SANDBOX, template_id="mystery"))
    assert await cluster.pending() == (0, 0, 1)
