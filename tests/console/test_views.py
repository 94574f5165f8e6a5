"""Every view in a real browser, against a fleet that moves: what it shows, and that everyone can use it."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser

from tests.console.scene import Scene, Visit

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

VIEWS = {
    "": ["Needs attention", "Placed", "CPUs in use", "Fleet", "draining"],
    "nodes": ["node-0", "draining", "of 16", "reserved"],
    "nodes/node-0": ["may be chosen", "http://node-0:8000", "Its reservations", "Drain …"],
    "reservations": ["settled", "sbx-", "made"],
    "groups": ["keeps no groups"],
    "decisions": ["placed", "least_loaded", "gateway"],
    "decisions?reason=too_large": ["Of these 1, 1 refused", "500 CPUs", "and now?"],
    "why": ["What would be answered"],
    "why?cpu=2&memory=100": ["It would be placed on", "would be chosen", "draining"],
    "why?cpu=500&memory=1": ["It would be refused", "larger than any node could ever hold"],
    "where": ["a gateway that looks this sandbox up"],
    "where?sandbox=nobody": ["on no node that the ledger knows of"],
    "audit": ["admin", "listed, moved or drained a node", "node-1", "state: lingering"],
    "settings": ["least_loaded", "report_ttl_ms", "10 min", "default", "configuration, revision 0", "agrees"],
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
