"""Keys and roles, as a person meets them: asked for, kept or not, refused in the server's words."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.console.scene import Scene, Visit

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def give_key(visit: Visit, key: str, *, keep: bool = False) -> None:
    await visit.page.get_by_label("API key", exact=True).last.fill(key)
    if keep:
        await visit.page.get_by_label("Keep it in this tab").check()
    await visit.page.get_by_role("button", name="Use it").click()


async def test_a_key_is_asked_for_and_forgotten_with_the_page_unless_it_shall_be_kept(
    browser: Browser, scene: Scene
) -> None:
    async with Visit.begin(browser, scene.url) as visit:
        await visit.page.goto(f"{scene.url}/#/nodes")
        await visit.shows("This scheduler asks for an API key")
        assert await visit.violations() == []
        await give_key(visit, "guessed")
        await visit.shows("This key is not known here")
        await give_key(visit, scene.keys["gateway"])
        await visit.shows("node-0")
        await visit.page.reload()
        await visit.shows("This scheduler asks for an API key")
        await give_key(visit, scene.keys["gateway"], keep=True)
        await visit.shows("node-0")
        await visit.page.reload()
        await visit.shows("node-0")
        assert await visit.page.evaluate("localStorage.length + document.cookie.length") == 0
        await visit.page.get_by_role("button", name="Forget the key").click()
        await visit.shows("This scheduler asks for an API key")
        assert await visit.page.evaluate("sessionStorage.length") == 0


async def test_who_may_only_read_is_refused_in_words_where_it_acts(browser: Browser, scene: Scene) -> None:
    async with Visit.begin(browser, scene.url, scene.keys["gateway"]) as visit:
        await visit.open("nodes/node-2")
        await visit.page.get_by_role("button", name="Drain …").click()
        await visit.shows("It is chosen for no new sandbox until it is undrained", "#dialog")
        await visit.page.get_by_role("button", name="Drain", exact=True).click()
        await visit.shows("A key of role gateway does not reach this call", "#dialog [role=alert]")
        assert await visit.violations() == []
        await visit.page.keyboard.press("Escape")
        await visit.page.get_by_role("button", name="Drain …").wait_for()
    async with scene.client() as client:
        assert (await client.get("/v1/nodes/node-2")).json()["discovery"] == "active"


async def test_an_admin_drains_removes_and_cordons_nodes_and_cancels_a_reservation(
    browser: Browser, scene: Scene
) -> None:
    async with scene.client() as client, Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        await client.put("/v1/nodes/node-extra", json={"endpoint": "http://node-extra:8000"})
        await visit.open("nodes/node-extra")
        for act, told in (("Drain", "is draining"), ("Undrain", "takes new sandboxes again"), ("Remove", "is removed")):
            await visit.page.get_by_role("button", name=f"{act} …", exact=True).click()
            await visit.page.get_by_role("button", name=act, exact=True).click()
            await visit.shows(f"node-extra {told}", "#told")
        await visit.shows("Not found")
        assert (await client.get("/v1/nodes/node-extra")).status_code == 404

        await visit.open("nodes/node-3")
        for act, told in (("Cordon", "is cordoned"), ("Uncordon", "is no longer cordoned")):
            await visit.page.get_by_role("button", name=f"{act} …", exact=True).click()
            await visit.page.get_by_role("button", name=act, exact=True).click()
            await visit.shows(f"node-3 {told}", "#told")

        held = {"hint": {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 256}, "lifecycle": "explicit"}
        placed = (await client.post("/v1/schedule", json=held)).json()["reservation"]
        await visit.open(f"reservations/{placed['reservation_id']}")
        await visit.page.get_by_role("button", name="Cancel the reservation …").click()
        await visit.shows(f"Its capacity on {placed['node_id']} is free at once", "#dialog")
        await visit.page.get_by_role("button", name="Cancel the reservation", exact=True).click()
        await visit.shows("given back by its caller")
        await visit.shows("cancelled in the console")
        found = (await client.get(f"/v1/reservations/{placed['reservation_id']}")).json()["reservation"]
        assert (found["state"], found["reason"]) == ("cancelled", "cancelled in the console")

        await visit.open("audit")
        for act in ("cancelled a reservation", "uncordoned a node", "cordoned a node", "removed a node"):
            await visit.shows(act)
