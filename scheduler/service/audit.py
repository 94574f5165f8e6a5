"""Who did what: acts of operators, and settings that came into force, kept in the ledger (the last 1,000)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.domain.journal import Entry
from scheduler.errors import SchedulerError
from scheduler.ledger.journals import Journal
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.domain.reservation import ReservationResult
    from scheduler.ledger.journals import JournalStore

log = get_logger("scheduler.audit")

_TEXT_SHOWN = 200


class AuditService:
    def __init__(self, journals: JournalStore) -> None:
        self._journals = journals

    async def note(self, actor: str, act: str, subject: str, **details: Any) -> None:
        """An act that took effect. It is logged in any case; a ledger that does not take it fails nobody's call."""
        shown = {name: _cut(value) for name, value in details.items()}
        log.info("act", actor=actor, act=act, subject=subject, **shown)
        facts = {"actor": actor, "act": act, "subject": _cut(subject), "details": shown}
        try:
            await self._journals.append(Journal.AUDIT, [(0, facts)])
        except SchedulerError as error:
            log.error("an act is not in the audit log", actor=actor, act=act, subject=subject, detail=error.full_detail)

    async def note_cancelled(self, actor: str, result: ReservationResult, reason: str) -> None:
        """A reservation that an administrator cancelled, once; what gateways cancel, by the thousand, is not noted."""
        if not result.cancelled:
            return
        details = {"node_id": result.reservation.node_id, "reason": reason}
        await self.note(actor, "reservation.cancel", result.reservation.reservation_id, **details)

    async def page(self, limit: int, cursor: str | None) -> tuple[tuple[Entry, ...], str | None]:
        """Newest first."""
        return await self._journals.page(Journal.AUDIT, limit, cursor, lambda entry: True)


def _cut(value: Any) -> Any:
    return value[:_TEXT_SHOWN] if isinstance(value, str) else value
