"""Whether this replica may be sent traffic, and why not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.errors import CommandsWithheld, Overloaded, StoreUnusable
from scheduler.observability.logging import get_logger
from scheduler.observability.metrics import Metrics

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger
    from scheduler.ledger.settings import SettingsOutcome

log = get_logger("scheduler.readiness")


@dataclass(frozen=True, slots=True)
class Readiness:
    """Ready. `settings` are those in force, and say whether they are this replica's own. `redis_replicas`: how many
    are `online`, and how many are `wanted` for a placement; None where placements wait for none."""

    settings: dict[str, Any]
    redis_replicas: dict[str, int] | None = None


class ReadinessService:
    """Ready while the ledger answers, the settings are agreed, and this replica is not draining."""

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._outcome: SettingsOutcome | None = None
        self._unusable: StoreUnusable | None = None
        self._rebuilding_until = 0.0
        self._draining = False
        self._difference_logged: tuple[str, int, tuple[str, ...]] | None = None

    def note_settings(self, outcome: SettingsOutcome) -> None:
        """The result of offering this replica's settings to the ledger; a conflict keeps it from being ready."""
        self._outcome, self._unusable = outcome, None
        self._rebuilding_until = time.monotonic() + outcome.rebuilding_ms / 1000
        self._metrics.set_settings_mismatch(bool(outcome.differing))
        self._log_difference(outcome)

    def _log_difference(self, outcome: SettingsOutcome) -> None:
        """Log each change once: a replica with a conflict asks again every second."""
        found = (outcome.status, outcome.settings.revision, tuple(outcome.differing)) if outcome.differing else None
        if found == self._difference_logged:
            return
        self._difference_logged = found
        if found is None:
            log.info("settings are the ledger's again", revision=outcome.settings.revision)
        else:
            status, revision, differing = found
            log.warning(
                "settings differ from the ledger's", status=status, revision=revision, differing=list(differing)
            )

    def note_unusable(self, error: StoreUnusable) -> None:
        """The server answers but cannot hold the ledger (read-only, too old), or holds one of another version.
        Stands until `note_usable`."""
        self._unusable = error

    def note_usable(self) -> None:
        self._unusable = None

    def drain(self) -> None:
        """Not ready from now on: the process finishes its requests and stops."""
        self._draining = True
        self._metrics.set_ready(False)

    @property
    def draining(self) -> bool:
        return self._draining

    async def check(self) -> Readiness:
        """Raises the reason why this replica is not ready: Overloaded while draining, StoreUnavailable or
        StoreUnusable."""
        if self._draining:
            raise Overloaded("draining: this replica is leaving", draining=True)
        with self._metrics.ledger_call("ping"):
            await self._ledger.ping()
        unusable = self._unusable
        if isinstance(unusable, CommandsWithheld) and self._ledger.client.refusals.withheld is None:
            unusable = None  # the commands have been allowed and checked meanwhile
        if unusable is not None:
            raise unusable.again()
        outcome = self._outcome
        if outcome is not None:
            self._check_refusals()
        if outcome is None:
            return Readiness(await self._settings_in_force(), self._redis_replicas())
        facts = {
            "status": outcome.status,
            "strategy": outcome.settings.strategy.value,
            "revision": outcome.settings.revision,
            "epoch": outcome.epoch,
            "differing": list(outcome.differing),
            "rebuilding": time.monotonic() < self._rebuilding_until,
        }
        if outcome.status == "conflict":
            raise StoreUnusable(
                "the ledger runs on other settings of the same revision: raise settings.revision to take over",
                settings=facts,
            )
        return Readiness(facts, self._redis_replicas())

    def _redis_replicas(self) -> dict[str, int] | None:
        """Too few are no reason not to be ready: every other replica has the same Redis."""
        replicas = self._ledger.client.replicas
        if not replicas.wanted or replicas.online is None:
            return None
        return {"online": replicas.online, "wanted": replicas.wanted}

    def _check_refusals(self) -> None:
        """Raises the last refusal of any call by the server; a written keepalive clears it."""
        client = self._ledger.client
        for refusal in (client.refusals.withheld, client.refusals.writes_refused):
            if refusal is not None:
                raise refusal.again()

    async def _settings_in_force(self) -> dict[str, Any]:
        found = await self._ledger.settings.get()
        if found is None:
            raise StoreUnusable("the ledger holds no settings yet", settings=None)
        settings, epoch = found
        return {"strategy": settings.strategy.value, "revision": settings.revision, "epoch": epoch}
