"""What the commands ask, whoever answers. Answers are plain mappings with the members that the HTTP API has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from scheduler.domain.journal import DecisionQuery

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """One thing at length: lines for people, and the same for programs."""

    lines: Iterable[str]
    plain: Any


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which reservations; None: all."""

    node_id: str | None = None
    state: str | None = None


class Source(Protocol):
    """Raises SchedulerError: NotFound, Forbidden, StoreUnavailable, …"""

    async def now_ms(self) -> int:
        """The clock that ages are told by."""

    async def nodes(self) -> list[Row]: ...

    async def node(self, node_id: str) -> Row: ...

    async def node_page(self, node_id: str) -> Page: ...

    async def set_node(self, node_id: str, endpoint: str, state: str) -> None:
        """`state`: active or lingering."""

    async def cordon(self, node_id: str, service_instance_id: str, *, cordoned: bool) -> None:
        """Raises InstanceMismatch when another instance reports."""

    async def remove_node(self, node_id: str) -> None: ...

    async def reservations(self, wanted: Wanted, limit: int, cursor: str | None) -> tuple[Sequence[Row], str | None]:
        """A page, oldest first, and the cursor of the next."""

    async def reservation_page(self, reservation_id: str) -> Page: ...

    async def cancel(self, reservation_id: str, reason: str) -> Row: ...

    async def where(self, sandbox_id: str) -> Row: ...

    async def replicas(self) -> list[Row]: ...

    async def decisions(self, query: DecisionQuery, limit: int) -> list[Row]:
        """At most so many of the last ones, newest first."""

    async def acts(self, limit: int) -> list[Row]:
        """Who did what, newest first."""

    async def warm_keys(self, key: str, node_id: str, limit: int) -> list[Row]:
        """Nodes with what they were given last; "" is any."""

    async def settings(self) -> Row: ...

    async def summary(self) -> Row: ...
