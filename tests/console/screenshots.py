"""`make screenshots`: the pictures of docs/console.md, taken of a fleet that moves."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import structlog

from tests.console.scene import Visit, moving_fleet, open_browser, open_scene

FOLDER = Path(__file__).parents[2] / "docs" / "images"
BYTES_MAX = 300_000
WINDOW = {"width": 1180, "height": 760}
# File, view, colours, and how long the page has been watched, for its lines of five minutes.
PICTURES = (
    ("console-overview", "", "light", 25_000),
    ("console-nodes", "nodes?sort=-pressure", "dark", 0),
    ("console-why", "why?cpu=14&memory=2048", "light", 0),
)


async def take() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_browser() as browser,
            open_scene(Path(folder), domain="production") as scene,
            moving_fleet(scene, nodes=24, creates_per_second=14.0),
        ):
            for name, view, scheme, watched_ms in PICTURES:
                window = {"viewport": WINDOW, "color_scheme": scheme}
                async with Visit.begin(browser, scene.url, scene.keys["admin"], **window) as visit:
                    await visit.open(view)
                    await visit.page.wait_for_timeout(watched_ms)
                    await visit.page.screenshot(path=FOLDER / f"{name}.png")
    size = sum((FOLDER / f"{name}.png").stat().st_size for name, *_ in PICTURES)
    print(f"{len(PICTURES)} pictures of {size} bytes in {FOLDER}")
    if size > BYTES_MAX:
        raise SystemExit(f"that is more than {BYTES_MAX} bytes")


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    asyncio.run(take())
