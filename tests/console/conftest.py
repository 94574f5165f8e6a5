"""One browser and one moving fleet a session, on the session's event loop; skipped where no browser is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.scene import Scene, chromium, moving_fleet, open_browser, open_scene


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    if chromium() is None:
        pytest.skip("no Chromium is installed: on Debian and Ubuntu, apt install chromium")
    async with open_browser() as opened:
        yield opened


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Opened after the browser, so that nothing is started where there is none."""
    async with open_scene(tmp_path_factory.mktemp("scene")) as opened, moving_fleet(opened):
        yield opened
