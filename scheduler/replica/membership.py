"""What a replica tells the ledger: its settings, the nodes and templates it knows, and that it lives.

    apart ──put settings──▶ joined ──the ledger was lost, or another server took over──▶ apart (recovering)
      │                        └──settings there are no longer those agreed on──▶ apart
      └── conflict: other replicas run on other settings of the same revision; ask again

No decision needs any of it: scripts read the ledger's settings. It is what makes an empty ledger
one, and a lost one whole again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.config import DiscoverySettings
from scheduler.domain.limits import PAGE_MAX
from scheduler.domain.node import DiscoveryState, NodeAddress
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import Conflict, NotFound, StoreUnusable
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.service import Services
    from scheduler.store.ledger import Ledger
    from scheduler.store.settings import LedgerSigns, SettingsOutcome

log = get_logger(__name__)

SIGN_OF_LIFE_TTL_MS = 10_000
SKEW_TOLD_MS = 1_000
_SHARE_OF_TIME_REMEMBERING = 20  # reading all nodes and templates takes at most one twentieth of the time


@dataclass(frozen=True, slots=True)
class Identity:
    """Which ledger this is. `epoch` is new when it was made anew; `server_run` when another process
    serves it, which may lack the last moments. None on the embedded ledger, which is this process."""

    epoch: str
    server_run: str | None


class Membership:
    """One replica's part in its domain. `step` is to be called every second or so, by one caller at a time."""

    def __init__(
        self,
        ledger: Ledger,
        services: Services,
        settings: LedgerSettings,
        discovery: DiscoverySettings,
        replica_id: str,
    ) -> None:
        self._ledger = ledger
        self._services = services
        self._settings = settings
        self._configured = discovery.nodes
        self._replica_id = replica_id
        self._identity: Identity | None = None
        self._signs: LedgerSigns | None = None
        self._recovering = False
        self._discovered: Mapping[str, tuple[str, DiscoveryState]] = {}
        self._declared: Mapping[str, Template] = {}
        self._remember_after = 0.0

    @property
    def joined(self) -> bool:
        return self._identity is not None

    async def step(self) -> None:
        """Join, or see whether what was agreed on still stands. Raises what the ledger raises."""
        with self._ledger.client.guard.looking():
            try:
                if self._identity is not None:
                    await self._look(self._identity)
                if self._identity is None:
                    await self._join()
            except StoreUnusable as error:
                self._services.readiness.note_unusable(error)
                raise
            self._services.readiness.note_usable()
            self._ledger.client.writes_refused = None  # a sign of life was written

    async def remember_discovery(self) -> None:
        """Keep what discovery lists and which templates were declared, so that a ledger that lost them can
        be told. Does nothing before its time."""
        identity, started = self._identity, time.monotonic()
        if identity is None or started < self._remember_after:
            return
        told = dict(self._ledger.nodes.told)
        nodes, declared = await self._ledger.nodes.list(), await self._declared_templates()
        # What was just read may already be the remains of a lost ledger; then the memory is the better one.
        if await self._identify() == identity:
            discovered = {node.node_id: (node.endpoint, node.discovery) for node in nodes}
            if discovered != self._discovered:
                log.debug("discovery remembered", nodes=len(discovered))
            self._discovered, self._declared = discovered, declared
            for node_id, change in told.items():
                if self._ledger.nodes.told.get(node_id) is change:
                    self._ledger.nodes.told.pop(node_id, None)  # the list that was just read has it
        finished = time.monotonic()
        self._remember_after = finished + _SHARE_OF_TIME_REMEMBERING * (finished - started)

    async def leave(self) -> None:
        """The last word: others need not wait for this replica's sign of life to run out."""
        if self.joined:
            await self._ledger.settings.leave(self._replica_id)

    async def _look(self, known: Identity) -> None:
        signs = await self._ledger.settings.sign_of_life(self._replica_id, SIGN_OF_LIFE_TTL_MS)
        found = Identity(signs.epoch, await self._server_run()) if signs else None
        if found != known:
            log.warning(
                "the ledger is not the one it was; putting back what this replica knows",
                epoch_before=known.epoch,
                epoch=found.epoch if found else None,
                another_server=bool(found and found.server_run != known.server_run),
            )
            self._identity, self._recovering = None, True
        elif signs and self._signs and (signs.revision, signs.digest) != (self._signs.revision, self._signs.digest):
            self._identity = None  # somebody wrote other settings: see what they mean for this replica
        if signs:
            self._notice_skew(signs.clock_skew_ms)
        self._signs = signs

    def _notice_skew(self, skew_ms: int) -> None:
        """Say once for each step that the server's clock was set back or went on."""
        before_ms = self._signs.clock_skew_ms if self._signs else 0
        if abs(skew_ms - before_ms) >= SKEW_TOLD_MS:
            log.warning(
                "the server's clock was stepped; ledger time goes on from where it was",
                skew_ms=skew_ms,
                skew_before_ms=before_ms,
            )

    async def _join(self) -> None:
        await self._ledger.client.check_server()
        await self._ledger.client.prove_commands(self._ledger.keys.settings)
        server_run = await self._server_run()
        lost = self._recovering and await self._ledger.settings.lost_something()
        outcome = await self._ledger.settings.put(
            self._settings,
            self._replica_id,
            recovering=self._recovering,
            lost_with=(server_run or "this process") if lost else "",
        )
        self._services.readiness.note_settings(outcome)
        if outcome.status == "conflict":
            self._ledger.client.guard.trust(server_run)  # it decides by its own settings, as before
            return
        await self._put_back()
        self._ledger.client.guard.trust(server_run)
        self._signs = await self._ledger.settings.sign_of_life(self._replica_id, SIGN_OF_LIFE_TTL_MS)
        self._identity = Identity(outcome.epoch, server_run)
        self._recovering = False
        self._tell(outcome)

    async def _put_back(self) -> None:
        if self._recovering:
            for node_id, known in {**self._discovered, **self._ledger.nodes.told}.items():
                if known is not None:
                    await self._ledger.nodes.set(node_id, *known, recovering=True)
            await self._put_back_templates()
        for address in self._configured:
            state = await self._state_to_set(address)
            if state is not None:
                await self._ledger.nodes.set(address.node_id, address.endpoint, state, recovering=self._recovering)
        for template in self._settings.templates.values():
            await self._ledger.templates.put(template)

    async def _put_back_templates(self) -> None:
        """Those the ledger no longer has; what it has may be newer than the memory."""
        kept = await self._declared_templates() if self._declared else {}
        for template_id in self._declared.keys() - kept.keys():
            try:
                await self._ledger.templates.put(self._declared[template_id])
            except Conflict as full:  # of templates it learned since: no reason to stay apart
                log.warning("a template could not be put back", template_id=template_id, detail=full.detail)

    async def _declared_templates(self) -> dict[str, Template]:
        """Learned ones are left out: nodes teach them again."""
        declared: dict[str, Template] = {}
        page, cursor = await self._ledger.templates.list(PAGE_MAX)
        while True:
            declared |= {template.template_id: template for template in page if template.source == "declared"}
            if cursor is None:
                return declared
            page, cursor = await self._ledger.templates.list(PAGE_MAX, cursor)

    async def _state_to_set(self, address: NodeAddress) -> DiscoveryState | None:
        """None: the ledger lists the node just so. A node that somebody drains keeps draining."""
        try:
            node = await self._ledger.nodes.get(address.node_id)
        except NotFound:
            return DiscoveryState.ACTIVE
        return None if node.endpoint == address.endpoint else node.discovery

    async def _identify(self) -> Identity | None:
        found = await self._ledger.settings.get()
        return Identity(found[1], await self._server_run()) if found else None

    async def _server_run(self) -> str | None:
        return (await self._ledger.client.info("server")).get("run_id")

    def _tell(self, outcome: SettingsOutcome) -> None:
        log.info(
            "joined the ledger",
            domain=self._ledger.domain,
            settings=outcome.status,
            strategy=outcome.settings.strategy.value,
            revision=outcome.settings.revision,
            epoch=outcome.epoch,
            rebuilding=outcome.rebuilding,
        )
