"""A ledger of another version is refused in words, before the first write, by every script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scheduler.connection.scripts import ScriptLibrary, find_folder
from scheduler.domain.node import DiscoveryState, Heartbeat, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import StoreUnavailable, StoreUnusable
from scheduler.ledger.format import FORMAT
from scheduler.ledger.ledger import Ledger
from scheduler.service import build_services
from tests.support.backends import Backend
from tests.upgrade.old_ledger import contents

LIBRARY = ScriptLibrary(find_folder())
# These run before there are settings; what they refuse is tested by itself.
BRING_SETTINGS = {"put_settings", "convert_ledger", "prove_commands"}
SCRIPTS = pytest.mark.parametrize("name", [name for name in LIBRARY.names if name not in BRING_SETTINGS])
UNKNOWN = {"format": "5", "strategy": "binpack", "admission": "sometimes", "group_placement": "nowhere"}


async def set_fields(backend: Backend, ledger: Ledger, **fields: str) -> None:
    client: Any = backend.client()
    await client.hset(ledger.keys.settings, mapping=fields)
    await client.aclose()


async def all_of(backend: Backend, ledger: Ledger) -> dict[str, Any]:
    client = backend.client()
    try:
        return await contents(client, ledger.keys)
    finally:
        await client.aclose()


def test_both_sides_know_the_same_format() -> None:
    assert f"local FORMAT = '{FORMAT}'" in LIBRARY.render("put_settings")


def test_the_page_of_upgrades_names_the_present_format() -> None:
    page = (Path(__file__).parents[2] / "docs/upgrade.md").read_text(encoding="utf-8")
    assert f"| this one | {FORMAT} |" in page


@SCRIPTS
async def test_every_script_refuses_what_it_does_not_know(name: str, ledger: Ledger, backend: Backend) -> None:
    for what, found in UNKNOWN.items():
        good = await ledger.client.command("HGET", ledger.keys.settings, what)
        await set_fields(backend, ledger, **{what: found})
        before = await all_of(backend, ledger)
        with pytest.raises(StoreUnusable, match=rf"{what}.* {found}" if what == "format" else f"{what} is '{found}'"):
            await ledger.runner.run(name, *["1"] * 30)
        assert await all_of(backend, ledger) == before
        await set_fields(backend, ledger, **{what: good.decode()})


@SCRIPTS
async def test_every_script_says_that_a_ledger_was_never_opened(
    name: str, open_ledger_on: Any, backend: Backend
) -> None:
    ledger = await open_ledger_on()
    with pytest.raises(StoreUnavailable, match="no settings yet"):
        await ledger.runner.run(name, *["1"] * 30)
    assert await all_of(backend, ledger) == {}


@pytest.mark.parametrize("revision", [0, 1, 99])
async def test_another_format_is_never_overwritten(revision: int, ledger: Ledger, backend: Backend) -> None:
    await set_fields(backend, ledger, format="5", revision="1")
    before = await all_of(backend, ledger)
    with pytest.raises(StoreUnusable, match=f"is of format 5; this version knows format {FORMAT}"):
        await ledger.settings.put(LedgerSettings(revision=revision), "replica")
    assert not await ledger.conversion.look()
    with pytest.raises(StoreUnusable, match="is of format 5"):
        await ledger.conversion.convert()
    assert await all_of(backend, ledger) == before


@pytest.mark.parametrize("what", ["strategy", "admission", "group_placement"])
async def test_unknown_names_stand_until_a_higher_revision_takes_over(
    what: str, ledger: Ledger, backend: Backend
) -> None:
    await set_fields(backend, ledger, revision="1", **{what: UNKNOWN[what]})
    with pytest.raises(StoreUnusable, match=f"{what} is '{UNKNOWN[what]}', which this version does not know"):
        await ledger.settings.put(LedgerSettings(revision=0), "replica")
    with pytest.raises(StoreUnusable, match=what):
        await ledger.settings.get()
    services = build_services(ledger)
    with pytest.raises(StoreUnusable, match=what):
        await services.readiness.check()
    with pytest.raises(StoreUnusable, match=what):
        await services.placement.schedule(ScheduleRequest())
    await services.overview.look()
    assert b"agentenv_scheduler_ready 0.0\n" in services.overview.page()
    assert b"agentenv_scheduler_ledger_up 1.0\n" in services.overview.page()
    outcome = await ledger.settings.put(LedgerSettings(strategy=Strategy.RANDOM, revision=2), "replica")
    assert outcome.status == "written"
    await services.readiness.check()


async def test_settings_are_whole_after_every_change(ledger: Ledger) -> None:
    limited = LedgerSettings(revision=3, strategy=Strategy.GROUPED_ROUND_ROBIN)
    await ledger.settings.put(limited, "replica")
    found = await ledger.settings.get()
    assert found is not None
    assert found[0] == limited


async def test_a_value_changed_by_hand_is_refused_in_words_where_it_is_read(ledger: Ledger) -> None:
    await ledger.nodes.set("a", "http://a:1", DiscoveryState.ACTIVE)
    await ledger.nodes.heartbeat(Heartbeat("a", "run-1", snapshot=NodeSnapshot(NodeStatus.READY, cpu_count=4)))
    decision = await ledger.placements.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, 1)))
    assert decision.reservation is not None
    reservation_id = decision.reservation.reservation_id
    await ledger.client.command("HSET", ledger.keys.node("a"), "create_fails", "many")
    with pytest.raises(StoreUnusable, match=r"ledger's node a cannot be read .* b'many'"):
        await ledger.nodes.get("a")
    with pytest.raises(StoreUnusable, match=r"ledger's node a cannot be read .* b'many'"):
        await ledger.nodes.list()
    await ledger.client.command("HSET", ledger.keys.reservation(reservation_id), "held_cpu", "most")
    with pytest.raises(StoreUnusable, match=rf"reservation {reservation_id} cannot be .* 'most'"):
        await ledger.reservations.get(reservation_id)
    await ledger.client.command("HSET", ledger.keys.settings, "revision", "newest")
    with pytest.raises(StoreUnusable, match=r"revision of the settings cannot be read .* 'newest'"):
        await ledger.settings.keepalive("r1")
