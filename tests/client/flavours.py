"""One story for both flavours: the blocking client behind the interface of the other one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

from agentenv_scheduler_client import AsyncSchedulerClient, SchedulerClient


def open_flavour(flavour: str, url: str, **options: Any) -> AsyncSchedulerClient:
    """A client to be entered by `async with`."""
    if flavour == "async":
        return AsyncSchedulerClient(url, **options)
    return cast("AsyncSchedulerClient", _Awaited(SchedulerClient(url, **options)))


class _Awaited:
    """Calls in a thread what blocks; a coroutine function that it is given, such as `start`, blocks for the client."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._inner, name)
        if not callable(member):
            return _Awaited(member) if type(member).__module__.startswith("agentenv_scheduler_client._sync") else member
        if name in {"place", "with_patience"}:
            return lambda *args, **kwargs: _Awaited(member(*args, **kwargs))
        if inspect.isgeneratorfunction(member):
            return lambda **kwargs: _each(member(**kwargs))

        async def call(*args: Any, **kwargs: Any) -> Any:
            loop = asyncio.get_running_loop()
            blocking = [_blocking(each, loop) for each in args]
            named = {key: _blocking(each, loop) for key, each in kwargs.items()}
            return await asyncio.to_thread(member, *blocking, **named)

        return call

    async def __aenter__(self) -> Any:
        await asyncio.to_thread(self._inner.__enter__)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await asyncio.to_thread(self._inner.__exit__, *raised)


def _blocking(given: Any, loop: asyncio.AbstractEventLoop) -> Any:
    if not inspect.iscoroutinefunction(given):
        return given
    function: Callable[..., Any] = given
    return lambda *args: asyncio.run_coroutine_threadsafe(function(*args), loop).result()


async def _each(items: Iterator[Any]) -> AsyncIterator[Any]:
    while (item := await asyncio.to_thread(next, items, None)) is not None:
        yield item
