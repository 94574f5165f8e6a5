"""Lists the open placement groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.limits import PAGE_DEFAULT
from scheduler.domain.sandbox import PlacementGroup
from scheduler.observability.metrics import Metrics
from scheduler.service.checks import clean_limit, clean_sequence_cursor

if TYPE_CHECKING:
    from scheduler.store.groups import GroupStore


class GroupService:
    def __init__(self, store: GroupStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    async def list(
        self, limit: int = PAGE_DEFAULT, cursor: str | None = None
    ) -> tuple[int, tuple[PlacementGroup, ...], str | None]:
        """The number of open groups, a page of them (most recently used first), and the cursor of the next page."""
        with self._metrics.ledger_call("list_groups"):
            return await self._store.list(limit=clean_limit(limit), cursor=clean_sequence_cursor(cursor))
