"""A replica's part in its domain: its settings, its keepalives, and restoring a ledger that was lost.

    apart ──put settings──▶ joined ──the ledger was lost, or another server took over──▶ apart (recovering)
      │                        └──the settings in the ledger changed──▶ apart
      └── conflict: other replicas run on other settings of the same revision; try again

Placements do not depend on this: scripts read the settings in the ledger. After a loss each replica writes back the
nodes, templates and reservations that it remembers; until every replica has done so (or sent no keepalive for
KEEPALIVE_TTL_MS), and for at least UNLISTED_MS, the scripts decide nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.config import DiscoverySettings
from scheduler.connection.server import ServerIdentity
from scheduler.domain.limits import PAGE_MAX
from scheduler.domain.sandbox import Template
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import Conflict, StoreUnusable
from scheduler.ledger.configured import Configured, ConfiguredBy
from scheduler.ledger.cordons import Cordons
from scheduler.ledger.node_list import ListedNode
from scheduler.ledger.settings import Loss
from scheduler.observability.logging import get_logger

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger
    from scheduler.ledger.settings import KeepaliveReply, SettingsOutcome
    from scheduler.service import Services

log = get_logger(__name__)

KEEPALIVE_INTERVAL_MS = 1_000
KEEPALIVE_TTL_MS = 10_000
# A replica that no member list names yet joined after the last keepalive, and checks the ledger with its next one.
UNLISTED_MS = KEEPALIVE_INTERVAL_MS * 3 // 2
SKEW_LOGGED_MS_MIN = 1_000
_READING_PAUSE_FACTOR = 100  # the pause after a reading is 100 times as long as the reading took


@dataclass(frozen=True, slots=True)
class Identity:
    """Which ledger this is. `epoch` is new for every empty ledger that is opened; `server` changes when another
    process or another history takes over, which may lack the latest writes."""

    epoch: str
    server: ServerIdentity

    def is_same(self, other: Identity) -> bool:
        return self.epoch == other.epoch and self.server.is_same(other.server)


class Membership:
    """One replica's membership. Call `step` every KEEPALIVE_INTERVAL_MS, never twice at a time."""

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
        self._kept: dict[str, tuple[str, ...]] = {}  # nodes, templates of another configuration of the same revision
        self._replica_id = replica_id
        self._identity: Identity | None = None
        self._last_keepalive: KeepaliveReply | None = None
        self._recovering = False
        self._known: Identity | None = None  # the ledger joined last, also while recovering
        self._members: tuple[str, ...] = ()  # from the last keepalive
        self._waited_for: tuple[str, ...] = ()  # since the last loss; some may not have reconnected yet
        self._waited_for_until = 0.0
        self._discovered: Mapping[str, ListedNode] = {}
        self._declared: Mapping[str, Template] = {}
        self._cordons: Cordons = {}
        self._remember_after = 0.0
        self._hazards: tuple[str, ...] = ()  # of the server, as told last
        self._too_few_replicas = False  # as it was logged

    @property
    def joined(self) -> bool:
        return self._identity is not None

    async def step(self) -> None:
        """Join the ledger, or check that the joined one is unchanged. Raises what the ledger raises."""
        with self._ledger.client.guard.verifying():
            try:
                if self._identity is not None:
                    await self._check(self._identity)
                if self._identity is None:
                    await self._join()
                else:
                    self._ledger.client.guard.check_passed()
                    if any(self._kept.values()) and self._members == (self._replica_id,):
                        await self._put_back_what_is_configured()  # the replica that kept them is gone
            except StoreUnusable as error:
                self._services.readiness.note_unusable(error)
                raise
            self._services.readiness.note_usable()
            self._ledger.client.refusals.writes_refused = None  # the keepalive was written
        self._update_memory()

    async def remember_discovery(self) -> None:
        """Remember the discovered nodes, cordons and declared templates, to restore a ledger that lost them.
        Returns at once when it is not due."""
        identity, started = self._identity, time.monotonic()
        if identity is None or started < self._remember_after:
            return
        changes, cordons = dict(self._ledger.nodes.recent_changes), dict(self._ledger.nodes.cordons.recent_changes)
        nodes, declared = await self._ledger.nodes.list(), await self._declared_templates()
        # The list just read may come from a ledger that has been lost; then the remembered one is better.
        found = await self._identify()
        if found is not None and found.is_same(identity):
            discovered = {
                node.node_id: ListedNode(node.endpoint, node.discovery, node.api_labels or None) for node in nodes
            }
            if discovered != self._discovered:
                log.debug("discovery remembered", nodes=len(discovered))
            self._discovered, self._declared = discovered, declared
            self._cordons = {node.node_id: node.cordoned_instance for node in nodes if node.cordoned}
            # Contained in the list just read.
            _drop_unchanged(self._ledger.nodes.recent_changes, changes)
            _drop_unchanged(self._ledger.nodes.cordons.recent_changes, cordons)
        finished = time.monotonic()
        self._remember_after = finished + _READING_PAUSE_FACTOR * (finished - started)

    async def leave(self) -> None:
        """Deregister, so that no other replica waits for this one's keepalive to expire."""
        if self.joined:
            await self._ledger.settings.leave(self._replica_id)

    async def _check(self, known: Identity) -> None:
        reply = await self._ledger.settings.keepalive(self._replica_id, KEEPALIVE_TTL_MS)
        found = Identity(reply.epoch, await self._server_identity()) if reply else None
        lacks = found is not None and await self._ledger.settings.has_lost_writes()
        if found is None or lacks or not found.is_same(known):
            log.warning(
                "the ledger is not the one it was; putting back what this replica knows",
                epoch_before=known.epoch,
                epoch=found.epoch if found else None,
                another_server=bool(found and not found.server.is_same(known.server)),
                lost_writes=lacks,
            )
            self._identity, self._recovering = None, True
            return
        before = self._last_keepalive
        if reply and before and (reply.revision, reply.digest) != (before.revision, before.digest):
            self._identity = None  # the settings changed: join again, to compare them with this replica's
        if reply:
            self._notice_skew(reply.clock_skew_ms)
            self._members = reply.replicas
        self._last_keepalive = reply

    def _notice_skew(self, skew_ms: int) -> None:
        """Log each step of the server's clock once."""
        before_ms = self._last_keepalive.clock_skew_ms if self._last_keepalive else 0
        if abs(skew_ms - before_ms) >= SKEW_LOGGED_MS_MIN:
            log.warning(
                "the server's clock was stepped; ledger time goes on from where it was",
                skew_ms=skew_ms,
                skew_before_ms=before_ms,
            )

    async def _join(self) -> None:
        await self._ledger.client.check_server()
        await self._tell_hazards()  # before the proof, which a refused INFO would otherwise undo
        await self._ledger.client.prove_commands(self._ledger.keys.settings)
        server = await self._server_identity()
        loss = await self._loss(server) if self._recovering else None
        outcome = await self._ledger.settings.put(self._settings, self._replica_id, loss)
        self._services.readiness.note_settings(outcome)
        if loss is not None:
            await self._put_back_what_was_lost(loss)
        if outcome.status == "conflict":
            self._ledger.client.guard.accept(server)  # placements follow the ledger's settings, as before
            return
        await self._put_back_what_is_configured()
        self._ledger.client.guard.accept(server)
        self._last_keepalive = await self._ledger.settings.keepalive(self._replica_id, KEEPALIVE_TTL_MS)
        self._members = self._last_keepalive.replicas if self._last_keepalive else ()
        self._identity = self._known = Identity(outcome.epoch, server)
        self._recovering = False
        self._log_joined(outcome)
        if outcome.status == "written":
            changed = {"revision": outcome.settings.revision, "strategy": outcome.settings.strategy.value}
            await self._services.audit.note(self._replica_id, "settings.put", "settings", **changed)

    async def _tell_hazards(self) -> None:
        """Log each once, however often this replica joins."""
        hazards = await self._ledger.client.hazards()
        for hazard in hazards:
            if hazard not in self._hazards:
                log.warning("the server may lose the ledger", problem=hazard)
        self._hazards = hazards

    async def _loss(self, server: ServerIdentity) -> Loss:
        """What the ledger may lack, compared with the one this replica joined."""
        found, known = await self._ledger.settings.get(), self._known
        lacks = await self._ledger.settings.has_lost_writes()
        anew = known is not None and (found is None or found[1] != known.epoch)
        can_lack = anew or lacks or (known is not None and server.may_lack_writes_of(known.server))
        earlier = self._waited_for if time.monotonic() < self._waited_for_until else ()
        self._waited_for = tuple({*self._members, *earlier, self._replica_id})
        self._waited_for_until = time.monotonic() + KEEPALIVE_TTL_MS / 1000
        return Loss(
            lost_with=server.name if lacks else "",
            rebuild_of=server.name if can_lack else "",
            lease_ms=KEEPALIVE_TTL_MS,
            members=self._waited_for,
            unlisted_ms=UNLISTED_MS,
        )

    async def _put_back_what_was_lost(self, loss: Loss) -> None:
        known = {**self._discovered, **self._ledger.nodes.recent_changes}
        await self._ledger.nodes.put_back({node_id: node for node_id, node in known.items() if node is not None})
        await self._ledger.nodes.cordons.put_back(self._cordons)
        await self._put_back_templates()
        restored = await self._ledger.rebuild.put_back(self._replica_id, KEEPALIVE_TTL_MS, loss.rebuild_of)
        log.info("put back", nodes=len(known), remembered=len(self._ledger.rebuild.memory), restored=restored)

    async def _put_back_what_is_configured(self) -> None:
        """List the nodes and templates of this replica's configuration, in place of those of an earlier one."""
        by = ConfiguredBy(self._replica_id, self._settings.revision, self._recovering)
        self._tell("nodes", len(self._configured), await self._ledger.nodes.configure(self._configured, by))
        templates = self._settings.templates
        self._tell("templates", len(templates), await self._ledger.templates.configure(templates, by))

    def _tell(self, what: str, configured: int, outcome: Configured) -> None:
        if outcome.removed:
            log.info("what left the configuration was removed from the ledger", what=what, ids=outcome.removed)
        if outcome.unlabelled:
            log.warning("nodes stay without labels: there are too many label sets", node_ids=outcome.unlabelled[:20])
        if outcome.outdated and configured:
            log.info("a configuration of a higher revision decides what is listed", what=what, configured=configured)
        if outcome.kept and outcome.kept != self._kept.get(what):
            log.warning(
                "what is not in this configuration stays listed: another replica may run on an earlier one of the same "
                "revision; raise settings.revision, or remove it",
                what=what,
                ids=outcome.kept,
            )
        self._kept[what] = outcome.kept

    async def _put_back_templates(self) -> None:
        """Restore templates the ledger lacks; those it has may be newer than the remembered ones."""
        kept = await self._declared_templates() if self._declared else {}
        for template_id in self._declared.keys() - kept.keys():
            try:
                await self._ledger.templates.put(self._declared[template_id])
            except Conflict as full:  # full of templates learned since: no reason to stay apart
                log.warning("a template could not be put back", template_id=template_id, detail=full.detail)

    async def _declared_templates(self) -> dict[str, Template]:
        """Learned templates are left out: create events teach them again."""
        declared: dict[str, Template] = {}
        page, cursor = await self._ledger.templates.list(PAGE_MAX)
        while True:
            declared |= {template.template_id: template for template in page if template.source == "declared"}
            if cursor is None:
                return declared
            page, cursor = await self._ledger.templates.list(PAGE_MAX, cursor)

    def _update_memory(self) -> None:
        memory, metrics = self._ledger.rebuild.memory, self._services.metrics
        memory.drop_due()
        metrics.show_remembered(len(memory))
        for why, count in memory.not_remembered.items():
            metrics.count_not_remembered(why, count)
        memory.not_remembered.clear()

    async def _identify(self) -> Identity | None:
        found = await self._ledger.settings.get()
        return Identity(found[1], await self._server_identity()) if found else None

    async def _server_identity(self) -> ServerIdentity:
        server, replicas = await self._ledger.client.server_identity(), self._ledger.client.replicas
        if replicas.too_few != self._too_few_replicas:
            self._too_few_replicas = replicas.too_few
            tell, what = (
                (log.warning, "too few Redis replicas are online for durability.wait_replicas; nothing is placed")
                if replicas.too_few
                else (log.info, "enough Redis replicas are online again")
            )
            tell(what, online=replicas.online, wanted=replicas.wanted)
        return server

    def _log_joined(self, outcome: SettingsOutcome) -> None:
        log.info(
            "joined the ledger",
            domain=self._ledger.domain,
            settings=outcome.status,
            strategy=outcome.settings.strategy.value,
            revision=outcome.settings.revision,
            epoch=outcome.epoch,
            rebuilding=outcome.rebuilding,
        )


def _drop_unchanged(recent: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Leave out what is still as it was `before`."""
    for node_id, change in before.items():
        if node_id in recent and recent[node_id] is change:
            del recent[node_id]
