"""What an operator asks the HTTP API, for the command line: the answers as they come."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentenv_scheduler_client import AsyncSchedulerClient, Tls
from agentenv_scheduler_client import errors as client_errors
from agentenv_scheduler_client.asking import segment
from scheduler.errors import (
    ConfigurationError,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotRebuilt,
    Overloaded,
    SchedulerError,
    StoreUnavailable,
    Unauthorized,
)
from scheduler.operating.pages import node_page, reservation_page
from scheduler.operating.source import Page, Row, Wanted

if TYPE_CHECKING:
    from scheduler.domain.journal import DecisionQuery

DEFAULT_URL = "http://127.0.0.1:8090"
_ATTEMPTS = 2
_PAGE = 1000
# What the commands tell apart.
_ERROR_BY_CODE: Mapping[str, type[SchedulerError]] = {
    error.code: error
    for error in (
        Conflict, DeadlineExceeded, Forbidden, InvalidRequest, NotFound, NotRebuilt, Overloaded, StoreUnavailable,
        Unauthorized,
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Access:
    """Where the scheduler, or its balancer, answers HTTP, and by what it knows us. Files are PEM."""

    url: str = DEFAULT_URL
    api_key: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def open(self, timeout_seconds: float) -> AsyncSchedulerClient:
        """Raises ConfigurationError for files that cannot be used."""
        if self.key_file is not None and self.cert_file is None:
            raise ConfigurationError("a private key needs its certificate: --cert-file")
        try:
            tls = Tls(
                # As httpx does by itself, the environment may name the authorities.
                ca_file=self.ca_file or os.environ.get("SSL_CERT_FILE") or None,
                cert_file=self.cert_file,
                key_file=self.key_file or self.cert_file,
            )
        except OSError as error:  # ssl.SSLError is one
            raise ConfigurationError(f"the TLS files cannot be used: {error}") from error
        return AsyncSchedulerClient(
            self.url, api_key=self.api_key, tls=tls, timeout_seconds=timeout_seconds, attempts=_ATTEMPTS
        )


@asynccontextmanager
async def over_http(access: Access, timeout_seconds: float = 10.0) -> AsyncIterator[HttpSource]:
    async with access.open(timeout_seconds) as client:
        yield HttpSource(client, access.url)


class HttpSource:
    """A `scheduler.operating.source.Source`."""

    def __init__(self, client: AsyncSchedulerClient, url: str) -> None:
        self._client = client
        self._url = url

    async def now_ms(self) -> int:
        """Ours: ages may be off by what this machine's clock is."""
        return time.time_ns() // 1_000_000

    async def nodes(self) -> list[Row]:
        return await self._pages("/v1/nodes", "nodes", {})

    async def node(self, node_id: str) -> Row:
        return await self._ask("GET", f"/v1/nodes/{segment(node_id)}")

    async def node_page(self, node_id: str) -> Page:
        node = await self.node(node_id)
        return Page(node_page(node, await self.now_ms()), node)

    async def set_node(self, node_id: str, endpoint: str, state: str) -> None:
        await self._ask("PUT", f"/v1/nodes/{segment(node_id)}", {"endpoint": endpoint, "state": state})

    async def cordon(self, node_id: str, service_instance_id: str, *, cordoned: bool) -> None:
        act = "cordon" if cordoned else "uncordon"
        body = {"service_instance_id": service_instance_id}
        await self._ask("POST", f"/v1/nodes/{segment(node_id)}/{act}", body)

    async def remove_node(self, node_id: str) -> None:
        await self._ask("DELETE", f"/v1/nodes/{segment(node_id)}", query={"remove": "true"})

    async def reservations(self, wanted: Wanted, limit: int, cursor: str | None) -> tuple[Sequence[Row], str | None]:
        asked = {"node_id": wanted.node_id, "state": wanted.state, "limit": str(limit), "cursor": cursor}
        query = {name: value for name, value in asked.items() if value is not None}
        answer = await self._ask("GET", "/v1/reservations", query=query)
        return answer["reservations"], answer["cursor"]

    async def reservation_page(self, reservation_id: str) -> Page:
        answer = await self._ask("GET", f"/v1/reservations/{segment(reservation_id)}")
        return Page(reservation_page(answer["reservation"], await self.now_ms()), answer)

    async def cancel(self, reservation_id: str, reason: str) -> Row:
        return await self._ask("POST", f"/v1/reservations/{segment(reservation_id)}/cancel", {"reason": reason})

    async def where(self, sandbox_id: str) -> Row:
        return await self._ask("GET", f"/v1/bindings/{segment(sandbox_id)}")

    async def replicas(self) -> list[Row]:
        answer = await self._ask("GET", "/v1/replicas")
        ahead_ms = answer["now_ms"] - await self.now_ms()
        return [{**sign, "expires_at_ms": sign["expires_at_ms"] - ahead_ms} for sign in answer["replicas"]]

    async def decisions(self, query: DecisionQuery, limit: int) -> list[Row]:
        return await self._pages("/v1/decisions", "decisions", asdict(query), limit)

    async def acts(self, limit: int) -> list[Row]:
        return await self._pages("/v1/audit", "acts", {}, limit)

    async def warm_keys(self, key: str, node_id: str, limit: int) -> list[Row]:
        return await self._pages("/v1/warm-keys", "nodes", {"key": key, "node_id": node_id}, limit)

    async def settings(self) -> Row:
        return await self._ask("GET", "/v1/settings")

    async def summary(self) -> Row:
        return await self._ask("GET", "/v1/summary")

    async def _pages(self, path: str, members: str, wanted: Mapping[str, str], most: int | None = None) -> list[Row]:
        """At most so many entries of a list, page after page; blank parameters are left out."""
        found: list[Row] = []
        query = {name: value for name, value in wanted.items() if value}
        while True:
            limit = {} if most is None else {"limit": str(min(_PAGE, most - len(found)))}
            answer = await self._ask("GET", path, query=query | limit)
            found += answer[members]
            if not answer.get("cursor") or (most is not None and len(found) >= most):
                return found
            query["cursor"] = answer["cursor"]

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            return await self._client.ask(method, path, body, query)
        except client_errors.SchedulerError as error:
            raise self._told(error) from error

    def _told(self, error: client_errors.SchedulerError) -> SchedulerError:
        """The scheduler's own error, with what an operator needs to know of the way there."""
        detail = error.detail
        if isinstance(error, client_errors.Unauthorized):
            detail += "; name a file with a key by --api-key-file, or set SCHEDULER_API_KEY"
        elif isinstance(error, client_errors.Unreachable):
            return StoreUnavailable(f"{self._url}: {detail}")
        return _ERROR_BY_CODE.get(error.code, SchedulerError)(detail)
