"""A copy of one Kubernetes list, kept current by a watch.

    list ──resource version──▶ watch ──event──▶ watch …
      ▲                          │ stream ended, connection lost: watch on from the last version seen
      └── 410 Gone, resync due ──┘ anything else: wait, then list again

Bookmarks only advance the version. A new list removes every object that is not in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.discovery.endpoints import KubernetesObject
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from kubernetes_asyncio.client.exceptions import ApiException

log = get_logger(__name__)

GONE = 410
WATCH_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ReflectorTimes:
    """`list_seconds` limits one list call; `watch_seconds` is how long the server keeps a watch open;
    `resync_seconds` after a list, the list is read again in any case."""

    list_seconds: float = 30.0
    watch_seconds: int = 240
    resync_seconds: float = 600.0
    retry_seconds: float = 1.0
    retry_seconds_max: float = 30.0


Call = Callable[..., Awaitable[Any]]


class _Gone(Exception):
    """The server no longer has the version to watch from."""


class Reflector:
    """`objects` by name; `synced` once the first list was read. `changed` is called after each change."""

    def __init__(
        self,
        name: str,
        call: Call,
        arguments: Mapping[str, Any],
        changed: Callable[[], None],
        times: ReflectorTimes | None = None,
    ) -> None:
        self.name = name
        self.objects: dict[str, KubernetesObject] = {}
        self.synced = False
        self._call = call
        self._arguments = dict(arguments)
        self._changed = changed
        self._times = times or ReflectorTimes()
        self._version = ""
        self._failures = 0

    async def run(self) -> None:
        """Run until cancelled. Every failure is logged and retried, after 1 s doubling to 30 s."""
        while True:
            try:
                await self._list()
                await self._watch_until_resync()
            except _Gone:
                log.info("the watch is too old; listing again", list=self.name)
            except _failures() as error:
                await self._pause(error)

    async def _list(self) -> None:
        response = await self._call(
            **self._arguments, _preload_content=False, _request_timeout=self._times.list_seconds
        )
        async with response:
            response.raise_for_status()
            listed = json.loads(await response.read())
        self._version = listed["metadata"]["resourceVersion"]
        self.objects = {item["metadata"]["name"]: item for item in listed.get("items") or ()}
        self.synced = True
        self._changed()

    async def _watch_until_resync(self) -> None:
        loop = asyncio.get_running_loop()
        resync_at = loop.time() + self._times.resync_seconds
        while loop.time() < resync_at:
            started_with = self._version
            try:
                async for event in self._events(min(self._times.watch_seconds, resync_at - loop.time())):
                    self._failures = 0
                    self._apply(event)
            except _failures() as error:
                # The version may still be valid; list again only after several failures.
                if self._failures >= WATCH_ATTEMPTS:
                    raise
                await self._pause(error)
                continue
            if self._version == started_with:
                # A server that ends watches at once must not be called in a tight loop.
                await asyncio.sleep(min(self._times.retry_seconds, max(0.0, resync_at - loop.time())))

    async def _events(self, seconds: float) -> AsyncIterator[Mapping[str, Any]]:
        response = await self._call(
            **self._arguments,
            watch=True,
            allow_watch_bookmarks=True,
            resource_version=self._version,
            timeout_seconds=max(1, round(seconds)),
            _preload_content=False,
            # Silence for longer than requested means that the connection is dead.
            _request_timeout=seconds + self._times.list_seconds,
        )
        async with response:
            if response.status == GONE:
                raise _Gone
            response.raise_for_status()
            async for line in response.content:
                if line.strip():
                    yield json.loads(line)

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            if item.get("code") == GONE:
                raise _Gone
            raise ConnectionError(f"the watch reported {item.get('reason')}: {item.get('message')}")
        self._version = item["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = item
        self._changed()

    async def _pause(self, error: Exception) -> None:
        self._failures += 1
        seconds = min(self._times.retry_seconds * 2 ** (self._failures - 1), self._times.retry_seconds_max)
        log.warning("a watch failed; trying again", list=self.name, problem=_summary(error), seconds=seconds)
        await asyncio.sleep(seconds)


def _failures() -> tuple[type[Exception], ...]:
    """The errors of the server and the connection. Imported late, because the client is an extra."""
    import aiohttp
    from kubernetes_asyncio.client.exceptions import ApiException

    # ValueError and KeyError: the answer is not JSON, or not a list.
    return (ApiException, aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError)


def _summary(error: Exception | ApiException) -> str:
    """Short, and without the headers of an ApiException."""
    status, reason = getattr(error, "status", None), getattr(error, "reason", None)
    return f"{status} {reason}" if status else f"{type(error).__name__}: {error}"[:200]
