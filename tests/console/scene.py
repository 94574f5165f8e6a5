"""What the console is looked at with: a scheduler that asks for keys, a fleet that moves on it, and a Chromium."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright
from playwright.async_api import TimeoutError as TooLate

from scheduler.access import generate_key, hash_key
from scheduler.cancellation import end_tasks
from scheduler.lab.live_fleet import LiveFleet, LiveFleetOptions
from tests.support.replica_thread import replica_in_thread

AXE = Path(__file__).parent / "axe" / "axe.min.js"
# A browser's own services are no part of a test, and a sandbox of its own is not to be had as root.
SWITCHES = ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"]
PATIENCE_MS = 30_000.0


def chromium() -> str | None:
    """The path of the system's Chromium."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    switches = [*SWITCHES, "--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else SWITCHES
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=switches)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(frozen=True, slots=True)
class Scene:
    """A running scheduler. `keys`: role → API key."""

    url: str
    keys: dict[str, str] = field(repr=False)

    def client(self, role: str = "admin") -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers={"X-API-Key": self.keys[role]}, timeout=120.0)


@asynccontextmanager
async def open_scene(folder: Path, **options: Any) -> AsyncIterator[Scene]:
    """The scheduler alone, in a thread with its ledger inside."""
    keys = {role: generate_key() for role in ("node", "gateway", "admin")}
    entries = [{"name": role, "role": role, "sha256": hash_key(key)} for role, key in keys.items()]
    file = folder / "keys.json"
    file.write_text(json.dumps({"keys": entries}), "utf-8")
    # So many decisions are kept that the first ones are still there when the last test looks.
    defaults = {
        "decisions__keep": 10_000,
        "strategy": "least_loaded",
        "affinity__slack": "0.3",
        "resources": ["gpu"],
        "discovery__mode": "heartbeat",
        "http__api_keys": str(file),
    }
    with replica_in_thread(**defaults | options) as url:
        yield Scene(url, keys)


@asynccontextmanager
async def moving_fleet(scene: Scene, nodes: int = 12, creates_per_second: float = 5.0) -> AsyncIterator[None]:
    """Nodes that report and a gateway that places; one drains, and one more is unhealthy."""
    fleet = LiveFleet(
        LiveFleetOptions(
            scene.url,
            nodes=nodes,
            cpu_count=16,
            memory_mb=32_768,
            creates_per_second=creates_per_second,
            sandbox_seconds=12,
            report_seconds=2,
            node_key=scene.keys["node"],
            gateway_key=scene.keys["gateway"],
        )
    )
    moving = asyncio.create_task(fleet.run())
    try:
        async with scene.client() as client:
            small = {"status": "unhealthy", "cpu_count": 1, "memory_total_bytes": 2**30}
            report = {"service_instance_id": "i-1", "endpoint": "http://node-ill:8000", "snapshot": small}
            await client.post("/v1/nodes/node-ill/heartbeat", json=report)
            # Its CPUs are all taken: it has GPUs, and nothing of the fleet goes there.
            full = {"status": "ready", "cpu_count": 1, "memory_total_bytes": 2**30, "allocated_cpu": 1}
            report = {"service_instance_id": "i-1", "endpoint": "http://node-gpu:8000", "snapshot": full}
            report["resources"] = {"gpu": {"total": 7, "allocated": 2}}
            await client.post("/v1/nodes/node-gpu/heartbeat", json=report)
            await _until(lambda: fleet.counts["confirm"] >= 3)
            await client.put("/v1/nodes/node-1", json={"endpoint": "http://node-1:8000", "state": "lingering"})
            held = {"hint": {"kind": "cold_sandbox", "cpu_count": 1, "memory_mb": 256}, "reservation_ttl": "1h"}
            await client.post("/v1/schedule", json=held)
            await client.post("/v1/schedule", json={"hint": {"kind": "cold_sandbox", "cpu_count": 500}})
        yield
    finally:
        await end_tasks([moving])


async def _until(is_so: Any) -> None:
    while not is_so():  # noqa: ASYNC110  it comes about by itself, and the test has its own limit
        await asyncio.sleep(0.05)


class Visit:
    """One person's look at the console: a browser context of its own, and all that went wrong in it.

    Whatever the browser complains of breaks the test, but for answers that are no success: the page tells them."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.on("console", self._note)
        page.on("pageerror", lambda error: self.complaints.append(f"uncaught: {error}"))
        page.set_default_timeout(PATIENCE_MS)

    @classmethod
    @asynccontextmanager
    async def begin(cls, browser: Browser, url: str, key: str | None = None, **context: Any) -> AsyncIterator[Self]:
        """`key` is given as if the person had kept it in this tab."""
        async with AsyncExitStack() as stack:
            opened = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | context)
            stack.push_async_callback(opened.close)
            if key is not None:
                await opened.add_init_script(f"sessionStorage.setItem('agentenv-scheduler-key', {json.dumps(key)})")
            visit = cls(opened, await opened.new_page(), url)
            yield visit
            assert visit.complaints == []

    async def open(self, view: str = "") -> None:
        """The view, once it has been read."""
        await self.page.goto(f"{self.url}/#/{view}")
        await self.settled()

    async def settled(self) -> None:
        await self.page.wait_for_selector("main[aria-busy=false] h1")

    async def shows(self, text: str, where: str = "main") -> None:
        """Wait until it is there to be read."""
        try:
            await self.page.locator(where, has_text=text).first.wait_for()
        except TooLate as late:
            raise AssertionError(f"{text!r} is not in: {await self.text(where)}") from late

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    async def violations(self) -> list[str]:
        """What axe-core finds wrong on the page as it is: rule, and where."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text("utf-8"))
        found = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    async def is_wider_than_the_window(self) -> bool:
        return bool(await self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)
