"""The log of work that went on without its caller."""

from __future__ import annotations

import logging

from agentenv_scheduler_client.errors import SchedulerError

log = logging.getLogger("agentenv_scheduler_client")

GIVEN_UP = "given up because the client closed; the reservation is held until its deadline"


def log_late(error: BaseException | None) -> None:
    """How work ended whose caller had left; None is well."""
    if isinstance(error, SchedulerError):
        reservation_id = None if error.reservation is None else error.reservation.reservation_id
        log.warning(
            "failed after its caller had left: %s (%s; sandbox %s, reservation %s)",
            error.detail,
            error.code,
            error.sandbox_id,
            reservation_id,
        )
    elif error is not None:
        log.error("failed after its caller had left", exc_info=error)
