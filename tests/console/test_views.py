"""Every view in a real browser, against a fleet that moves: what it shows, and that everyone can use it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser

from tests.console.scene import Scene, Visit

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

VIEWS = {
    "": ["Needs attention", "Placed", "CPUs in use", "2 of 7", "Fleet", "draining"],
    "nodes": ["node-0", "draining", "of 16", "reserved"],
    "nodes/node-gpu": ["gpu", "2 of 7"],
    "nodes/node-0": ["may be chosen", "http://node-0:8000", "Its reservations", "Drain …"],
    "reservations": ["settled", "sbx-", "made"],
    "groups": ["keeps no groups", "fuller by 30 %", "node-0", "image:"],
    "groups?key=image:nobody": ["Nothing is warm like that"],
    "decisions": ["placed", "least_loaded", "gateway"],
    "decisions?reason=too_large": ["Of these 1, 1 refused", "500 CPUs", "and now?"],
    "why": ["What would be answered"],
    "why?cpu=2&memory=100": ["It would be placed on", "would be chosen", "draining"],
    "why?cpu=1&memory=1&require=zone=a|b&resources=disk=5&spread=web&over=zone&max=2": [
        "It would be refused",
        "lacks a label that the request requires",
    ],
    "why?cpu=500&memory=1": ["It would be refused", "larger than any node could ever hold"],
    "where": ["a gateway that looks this sandbox up"],
    "where?sandbox=nobody": ["on no node that the ledger knows of"],
    "audit": ["admin", "listed, moved or drained a node", "node-1", "state: lingering"],
    "settings": ["least_loaded", "report_ttl_ms", "10 min", "default", "option, revision 0", "agrees"],
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_view_shows_the_fleet_and_axe_finds_nothing(browser: Browser, scene: Scene, scheme: str) -> None:
    """Dark on a telephone, light on a desk: that is every view in both, and nothing wider than the window."""
    width = 360 if scheme == "dark" else 1280
    window = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    async with Visit.begin(browser, scene.url, scene.keys["admin"], **window) as visit:
        for view, shown in VIEWS.items():
            await visit.open(view)
            for text in shown:
                await visit.shows(text)
            assert await visit.violations() == [], view
            assert not await visit.is_wider_than_the_window(), view


async def test_a_wall_of_4k_is_used_and_who_wants_no_motion_sees_none(browser: Browser, scene: Scene) -> None:
    window = {"viewport": {"width": 3840, "height": 2160}, "reduced_motion": "reduce"}
    async with Visit.begin(browser, scene.url, scene.keys["admin"], **window) as visit:
        for view in ("", "nodes", "nodes/node-0", "decisions"):
            await visit.open(view)
            box = await visit.page.locator("main").bounding_box()
            assert box is not None
            # Lines that an eye still follows, in the middle; wider than a desk's screen.
            assert 1280 < box["width"] <= 1920
            assert abs(2 * box["x"] + box["width"] - 3840) < 2
            assert await visit.violations() == [], view
        await visit.open("nodes/node-2")
        for act in ("Drain", "Undrain"):
            await visit.page.get_by_role("button", name=f"{act} …", exact=True).click()
            await visit.page.get_by_role("button", name=act, exact=True).click()
            await visit.shows("node-2", "#told")
            moved = "document.getAnimations().flatMap((each) => each.effect.getKeyframes().flatMap(Object.keys))"
            known = {"offset", "easing", "composite", "computedOffset", "visibility"}
            assert set(await visit.page.evaluate(moved)) <= known


QUIET = {
    "ledger": {"rebuilding": False, "clock_skew_ms": 0},
    "nodes": {"ready": 3},
    "rates": {"placed": 1.0, "refused": {"label": 0}},
    "now_ms": 1_000_000,
    "oldest_pending_ms": 999_000,
    "longest_wait_ms": 0,
}
FULL = {"node_id": "full", "pressure": {"highest": 1.2}, "cordoned": False, "ineligible_reason": None}
ATTENTION: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "rebuilding": ("is being rebuilt", {"ledger": {"rebuilding": True, "clock_skew_ms": 0}}, {}),
    "skew": ("is 5 s ahead", {"ledger": {"rebuilding": False, "clock_skew_ms": 5_000}}, {}),
    "unhealthy": ("2 nodes unhealthy", {"nodes": {"unhealthy": 2}}, {}),
    "connecting": ("1 node connecting", {"nodes": {"connecting": 1}}, {}),
    "pressure": ("1 node over pressure", {}, {"nodes": [FULL]}),
    "avoided": ("full: refused or failed", {}, {"nodes": [FULL | {"pressure": {}, "ineligible_reason": "avoided"}]}),
    "cordoned": ("full: chosen for nothing new", {}, {"nodes": [FULL | {"pressure": {}, "cordoned": True}]}),
    "settings": ("otherwise of strategy", {}, {"settings": {"differing": ["strategy"], "revision": 3}}),
    "refused": ("Refusing 0.5/s", {"rates": {"placed": 0, "refused": {"label": 0.5}}}, {}),
    "oldest": ("pending for 10 min", {"oldest_pending_ms": 400_000}, {}),
    "waiting": ("waits for 9 s", {"longest_wait_ms": 9_000}, {}),
}


async def test_whatever_needs_attention_is_named_and_nothing_else(browser: Browser, scene: Scene) -> None:
    judge = """([cases]) => import(document.querySelector("script[type=module]").src.replace("main.js", "attention.js"))
        .then(({ concerns }) => cases.map(([summary, known]) => concerns(summary, null, known)))"""
    cases = [(QUIET | summary, {"nodes": None, "settings": None} | known) for _, summary, known in ATTENTION.values()]
    async with Visit.begin(browser, scene.url, scene.keys["admin"]) as visit:
        await visit.open()
        quiet, *found = await visit.page.evaluate(judge, [[(QUIET, {"nodes": [], "settings": None}), *cases]])
        assert quiet == []
        for (key, (text, _, _)), concerns in zip(ATTENTION.items(), found, strict=True):
            assert [each["key"] for each in concerns] == [key]
            assert text in f"{concerns[0]['title']} {concerns[0]['reason']}"
