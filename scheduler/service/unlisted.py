"""Resources that nodes report and no setting lists: they are not counted, and somebody should know."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from scheduler.domain.resources import DISK
from scheduler.errors import SchedulerError
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.ledger.settings import SettingsStore

log = get_logger("scheduler.nodes")

NAMES_MAX = 1_000


class UnlistedResources:
    """Warns once of each name; nodes go on reporting it."""

    def __init__(self, settings: SettingsStore) -> None:
        self._settings = settings
        self._met: set[str] = {DISK}

    async def note(self, node_id: str, names: Collection[str]) -> None:
        """Look at what a report names. Only a name that was not met before costs a call."""
        if self._met.issuperset(names) or len(self._met) > NAMES_MAX:
            return
        fresh = set(names) - self._met
        self._met |= fresh
        try:
            found = await self._settings.get()
        except SchedulerError:
            self._met -= fresh
            return
        listed = found[0].resources if found is not None else ()
        unlisted = sorted(fresh.difference(listed))
        if unlisted:
            log.warning(
                "a node reports resources that the setting `resources` does not list: they are not counted",
                node_id=node_id,
                reported=unlisted,
                listed=list(listed),
            )
