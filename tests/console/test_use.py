"""The console in use: by keyboard, in a tab that nobody sees, below a proxy, when nothing answers, on a large fleet."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from playwright.async_api import Browser, Route

from tests.console.scene import Scene, Visit, open_scene
from tests.support.servers import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
ROOT = Path(__file__).parents[2]


async def focused(visit: Visit) -> str:
    found: str = await visit.page.evaluate("document.activeElement.id || document.activeElement.innerText")
    return found


async def test_everything_is_reached_by_keyboard_and_the_focus_is_seen(browser: Browser, scene: Scene) -> None:
    async with Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        keyboard = visit.page.keyboard
        await visit.open()
        await keyboard.press("Tab")
        assert await focused(visit) == "skip"
        assert await visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        await keyboard.press("Enter")
        assert await focused(visit) == "view"
        while await visit.page.evaluate("document.activeElement.tagName") != "CANVAS":
            await keyboard.press("Tab")
        await keyboard.press("Home")
        await visit.shows("node-ill: unhealthy", "#fleet-pointed")
        await keyboard.press("ArrowRight")
        await visit.shows("node-1: draining", "#fleet-pointed")
        # What is read meanwhile takes neither the focus nor the place.
        await visit.page.evaluate("dispatchEvent(new Event('resize'))")
        await visit.shows("node-1: draining", "#fleet-pointed")
        await keyboard.press("Enter")
        await visit.shows("node-1", "main h1")
        await visit.settled()
        assert await focused(visit) == "Node node-1"
        undrain = visit.page.get_by_role("button", name="Undrain …")
        await undrain.focus()
        await keyboard.press("Enter")
        await visit.page.locator("dialog[open]").wait_for()
        await keyboard.press("Escape")
        assert await focused(visit) == "Undrain …"


async def press_until(visit: Visit, wanted: str) -> None:
    """Tab on, as far as it takes."""
    for _ in range(60):
        await visit.page.keyboard.press("Tab")
        if await focused(visit) == wanted:
            outline = await visit.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid", wanted
            return
    raise AssertionError(f"{wanted} is not reached")


async def test_an_act_takes_a_keyboard_and_nothing_else_and_the_focus_is_never_lost(
    browser: Browser, scene: Scene
) -> None:
    async with scene.client() as client, Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        await client.put("/v1/nodes/node-keys", json={"endpoint": "http://node-keys:8000"})
        keyboard = visit.page.keyboard
        await visit.open("nodes/node-keys")
        for act, told in (("Drain", "is draining"), ("Undrain", "takes new sandboxes again"), ("Remove", "is removed")):
            if await focused(visit) != f"{act} …":
                await press_until(visit, f"{act} …")
            await keyboard.press("Enter")
            await visit.shows(f"{act} node-keys", "#dialog h2")
            await press_until(visit, act)
            await keyboard.press("Enter")
            await visit.shows(f"node-keys {told}", "#told")
            if act == "Drain":
                await visit.shows("Undrain …")
                assert await focused(visit) == "Undrain …"
        await visit.shows("Not found")
        assert await focused(visit) == "Node node-keys"


async def test_of_two_tabs_the_later_act_is_told_what_the_first_did(browser: Browser, scene: Scene) -> None:
    async with (
        scene.client() as client,
        Visit.begin(browser, scene.url, scene.keys["admin"]) as one,
        Visit.begin(browser, scene.url, scene.keys["admin"]) as other,
    ):
        await client.put("/v1/nodes/node-twice", json={"endpoint": "http://node-twice:8000"})
        report = {"service_instance_id": "i-1", "snapshot": {"status": "ready", "cpu_count": 1}}
        await client.post("/v1/nodes/node-twice/heartbeat", json=report)
        for visit, act in ((one, "Drain"), (other, "Cordon")):
            await visit.open("nodes/node-twice")
            await visit.page.get_by_role("button", name=f"{act} …", exact=True).click()
        await client.post("/v1/nodes/node-twice/heartbeat", json=report | {"service_instance_id": "i-2"})
        await other.page.get_by_role("button", name="Cordon", exact=True).click()
        await other.shows("Service instance mismatch", "#dialog [role=alert]")
        await client.delete("/v1/nodes/node-twice?remove=true")
        await one.page.get_by_role("button", name="Drain", exact=True).click()
        await one.shows("Not found", "#dialog [role=alert]")
        assert (await client.get("/v1/nodes/node-twice")).status_code == 404, "a drain lists no node again"


HOSTILE = "<img src=x onerror=alert(1)>/../?#%2f&\u202e\"'"


async def test_hostile_names_are_shown_as_they_are_and_lead_where_they_say(browser: Browser, scene: Scene) -> None:
    async with scene.client() as client, Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        at = f"/v1/nodes/{quote(HOSTILE, safe='')}"
        (await client.put(at, json={"endpoint": "http://node-x:8000"})).raise_for_status()
        snapshot = {"status": "ready", "cpu_count": 64, "memory_total_bytes": 2**40}
        report = {"service_instance_id": HOSTILE, "version": HOSTILE, "cluster_id": HOSTILE, "snapshot": snapshot}
        (await client.post(f"{at}/heartbeat", json=report | {"sandbox_ids": [HOSTILE]})).raise_for_status()
        hint = {
            "kind": "cold_sandbox",
            "cpu_count": 40,
            "memory_mb": 1,
            "images": [HOSTILE],
            "metadata": {HOSTILE: HOSTILE},
        }
        placed = (await client.post("/v1/schedule", json={"hint": hint, "sandbox_id": HOSTILE + "2"})).json()
        assert placed["node"]["node_id"] == HOSTILE
        await visit.open("nodes?sort=-cpu_count")
        await visit.page.get_by_role("link", name=HOSTILE, exact=True).first.click()
        await visit.shows(HOSTILE, "main h1")
        await visit.shows(f"image:{HOSTILE}")
        await visit.page.get_by_role("link", name=f"image:{HOSTILE}", exact=True).click()
        await visit.shows(HOSTILE, "tbody th")
        for view in ("", "decisions", "reservations", "audit", f"where?sandbox={quote(HOSTILE, safe='')}"):
            await visit.open(view)
            assert await visit.page.locator("main img").count() == 0
        await visit.shows("is on")
        await visit.open("nodes/..")
        await visit.shows("a browser cannot ask for the id")
        await client.delete(f"{at}?remove=true")


async def test_what_is_being_typed_survives_what_is_read(browser: Browser, scene: Scene) -> None:
    async with Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        await visit.open("nodes")
        field = visit.page.get_by_label("Node", exact=True)
        await field.fill("node-")
        async with visit.page.expect_response("**/v1/nodes?*"):
            pass
        async with visit.page.expect_response("**/v1/summary"):
            pass
        await visit.page.keyboard.type("3")
        assert await field.input_value() == "node-3"
        await visit.page.keyboard.press("Enter")
        await visit.shows("node-3", "main h1")


async def test_a_tab_that_nobody_sees_asks_nothing(browser: Browser, scene: Scene) -> None:
    async with Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        # The page's timers are the test's, so that minutes pass at once.
        await visit.page.clock.install()
        await visit.open()
        asked: list[str] = []
        visit.page.on("request", lambda request: asked.append(request.url))
        await see(visit, hidden=True)
        await visit.page.clock.run_for(120_000)
        assert asked == []
        async with visit.page.expect_request("**/v1/summary"):
            await see(visit, hidden=False)
            await visit.page.clock.run_for(10)


async def see(visit: Visit, *, hidden: bool) -> None:
    await visit.page.evaluate(
        "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        hidden,
    )


async def test_without_an_answer_it_says_so_and_shows_what_it_knew(browser: Browser, scene: Scene) -> None:
    away = {
        "title": "Store unavailable",
        "status": 503,
        "detail": "the ledger cannot be reached",
        "code": "store_unavailable",
    }

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(away))

    async with Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        await visit.open()
        await visit.shows("●", "#connection")
        await visit.page.route("**/v1/summary", refuse)
        await visit.shows("The ledger cannot be reached")
        await visit.shows("✕ no answer", "#connection")
        await visit.shows("Fleet")
        await visit.page.unroute("**/v1/summary")
        await visit.shows("Placed")


async def test_five_thousand_nodes_are_one_look(browser: Browser, tmp_path: Path, real_server: RedisServer) -> None:
    async with open_scene(tmp_path, redis_addr=real_server.url, http__request_timeout="5m") as large:
        listed = [{"id": f"node-{number:04}", "endpoint": f"http://10.0.0.1:{number + 1}"} for number in range(5000)]
        async with large.client() as client:
            assert (await client.put("/v1/nodes", json={"active": listed})).status_code == 200
        async with Visit.begin(browser, large.url, large.keys["admin"]) as visit:
            await visit.open()
            await visit.shows("5,000", ".legend")
            box = await visit.page.locator("canvas").bounding_box()
            assert box is not None
            assert box["height"] <= 301
            await visit.page.locator("canvas").focus()
            await visit.page.keyboard.press("End")
            await visit.shows("node-4999:", "#fleet-pointed")
            await visit.open("nodes")
            assert await visit.page.locator("tbody tr").count() == 50
            await visit.page.get_by_role("link", name="next page").click()
            await visit.shows("node-0050")


@contextmanager
def shown_below(path: str, url: str, folder: Path) -> Iterator[str]:
    """The shipped haproxy.cfg, with the lines of docs/console.md, before one replica; the address it is shown at."""
    shipped = (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8")
    page = (ROOT / "docs" / "console.md").read_text("utf-8")
    lines = page.partition("```haproxy\n")[2].partition("```")[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    kept = [
        f"    server replica {url.removeprefix('http://')}" if "server replica-1 replica-1:8090" in line else line
        for line in shipped.partition("frontend grpc")[0].splitlines()
        if not any(word in line for word in ("replica-2:", "replica-3:", "resolvers", "nameserver", "hold valid"))
    ]
    file = folder / "haproxy.cfg"
    text = "\n".join(kept).replace("bind 0.0.0.0:8080", f"bind 127.0.0.1:{port}\n{lines}") + "\n"
    file.write_text(text.replace("/scheduler", path), "utf-8")
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["haproxy", "-f", str(file)], stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
async def test_it_is_shown_below_a_path_by_the_shipped_proxy(browser: Browser, scene: Scene, tmp_path: Path) -> None:
    with shown_below("/ops/scheduler", scene.url, tmp_path) as url:
        transport = httpx.AsyncHTTPTransport(retries=8)  # until it listens
        async with httpx.AsyncClient(transport=transport) as client:
            assert (await client.get(f"{url}/healthz")).status_code == 200
        for address in (url, f"{url}/"):
            async with Visit.begin(browser, url, scene.keys["admin"]) as visit:
                await visit.page.goto(address)
                await visit.shows("Fleet")
                await visit.page.get_by_role("link", name="Nodes", exact=True).first.click()
                await visit.shows("node-0")
                assert visit.page.url == f"{url}/#/nodes"
                await visit.page.goto(f"{url}/docs")
                await visit.page.get_by_text("/v1/schedule").first.wait_for()
