"""An event loop whose time passes only when everybody waits: sleeps and timeouts of any length cost nothing.

    virtually(story())     runs the coroutine; `loop.time()` inside starts at 0

For code that talks to nobody outside the loop: a socket or thread would wait in real time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.now


class _Jump(selectors.DefaultSelector):
    """Instead of waiting, it moves the loop's time to the next timer."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("every task waits for something that will never happen")
        if not ready and timeout is not None and timeout > 0:
            self._loop.now += timeout
        return ready


def virtually(story: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(story)


def now() -> float:
    """Seconds since the story began."""
    return asyncio.get_running_loop().time()
