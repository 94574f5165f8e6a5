"""The settings that all replicas share, and the list of live replicas."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from scheduler.domain.replica import LiveReplica
from scheduler.domain.settings import LedgerSettings
from scheduler.errors import StoreUnavailable
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner
from scheduler.ledger.settings_fields import decode, encode

DEFAULT_KEEPALIVE_TTL_MS = 15_000
REPLICAS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class SettingsOutcome:
    """The result of offering settings: `written`, `same`, `adopted` (the ledger's revision is higher) or `conflict`
    (equal revision, other content, another replica alive). `settings` are those in force. `rebuilding_ms`: how much
    longer a lost ledger counts as not rebuilt."""

    status: str
    settings: LedgerSettings
    epoch: str
    differing: tuple[str, ...] = ()
    rebuilding_ms: int = 0

    @property
    def rebuilding(self) -> bool:
        return self.rebuilding_ms > 0


@dataclass(frozen=True, slots=True)
class Loss:
    """The ledger may have been lost or rolled back, so for one binding_ttl a missing entry is answered "not rebuilt"
    instead of "not found".

    `lost_with`: the server since which an acknowledged write is missing, so no node admits before it has reported.
    `rebuild_of`: the name of this loss, "" when nothing can be lost; until the `members`, and every other replica
    known to the ledger, have written back what they remember or `lease_ms` has passed, nothing is decided.
    `unlisted_ms`: nor before this time has passed, so that replicas which joined after the last listing of members
    can act."""

    lost_with: str = ""
    rebuild_of: str = ""
    lease_ms: int = DEFAULT_KEEPALIVE_TTL_MS
    members: tuple[str, ...] = ()
    unlisted_ms: int = 0


@dataclass(frozen=True, slots=True)
class KeepaliveReply:
    """What the ledger answers to a keepalive: its epoch, the settings in force and the live replicas."""

    epoch: str
    revision: int
    digest: str
    refreshing: bool
    clock_skew_ms: int = 0
    replicas: tuple[str, ...] = ()


def digest_of(content: Mapping[str, str]) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


class SettingsStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def put(self, settings: LedgerSettings, replica_id: str, loss: Loss | None = None) -> SettingsOutcome:
        """Offer settings to the ledger; with `loss` when it may have lost writes."""
        content = encode(settings)
        noted = loss or Loss()
        values = [part for item in content.items() for part in item]
        status, reply = await self._runner.run(
            "put_settings",
            replica_id,
            settings.revision,
            digest_of(content),
            secrets.token_hex(8),
            int(loss is not None),
            noted.lost_with,
            noted.rebuild_of,
            noted.lease_ms,
            noted.unlisted_ms,
            len(noted.members),
            *noted.members,
            *values,
        )
        found = codec.texts(reply[0])
        differing = tuple(sorted(
            name for name in content.keys() | _content_names(found) if content.get(name) != found.get(name)
        ))  # fmt: skip
        return SettingsOutcome(status, decode(found), found["epoch"], differing, int(reply[1]))

    async def get(self) -> tuple[LedgerSettings, str] | None:
        """The settings in force and the ledger's epoch; None for an empty ledger."""
        found = codec.texts(await self._runner.client.command("HGETALL", self._runner.keys.settings))
        return (decode(found), found["epoch"]) if "epoch" in found else None

    async def rebuilding_until_ms(self) -> int:
        """Until when what is missing counts as lost and not as unknown; 0 when nothing was lost."""
        return codec.number(
            await self._runner.client.command("HGET", self._runner.keys.settings, "rebuilding_until_ms")
        )

    async def replicas(self, now_ms: int) -> tuple[LiveReplica, ...]:
        """The replicas that are alive, in id order; at most REPLICAS_MAX."""
        reply = await self._runner.client.command(
            "ZRANGE", self._runner.keys.replicas, 0, REPLICAS_MAX - 1, "WITHSCORES"
        )
        signs = (
            LiveReplica(codec.text(reply[index]), int(float(reply[index + 1]))) for index in range(0, len(reply), 2)
        )
        return tuple(sorted((sign for sign in signs if sign.expires_at_ms > now_ms), key=lambda sign: sign.replica_id))

    async def has_lost_writes(self) -> bool:
        """Whether the ledger's sequence is lower than one it has answered to this replica.

        Servers persist and replicate writes in order, so a ledger that reached this sequence has all earlier writes.
        Compared with what had been answered before the question: later answers may be read before its own."""
        answered = self._runner.newest_sequence
        return codec.number(await self._runner.client.command("GET", self._runner.keys.sequence)) < answered

    async def keepalive(self, replica_id: str, ttl_ms: int = DEFAULT_KEEPALIVE_TTL_MS) -> KeepaliveReply | None:
        """Register this replica as live for another `ttl_ms`. None: the ledger is empty. renew_replica.lua"""
        try:
            _, reply = await self._runner.run("renew_replica", replica_id, ttl_ms, alone=True)
        except StoreUnavailable as error:
            if "no settings" in error.detail:
                return None
            raise
        epoch, revision, digest, refreshing, skew_ms, now_ms, *replicas = map(codec.text, reply)
        self._runner.memory.note_time(int(now_ms))
        with codec.understood("revision of the settings"):
            return KeepaliveReply(epoch, int(revision), digest, refreshing == "1", int(skew_ms), tuple(replicas))

    async def leave(self, replica_id: str) -> None:
        await self.keepalive(replica_id, 0)

    async def refresh(self) -> bool:
        """Recompute one slice of node rows for the settings in force; False when all are done."""
        _, reply = await self._runner.run("refresh_rows")
        return int(reply[0]) == 1

    async def stats(self) -> dict[str, int]:
        """The counters of the domain."""
        found = codec.texts(await self._runner.client.command("HGETALL", self._runner.keys.stats))
        return {name: int(value) for name, value in found.items()}


_NOT_CONTENT = {
    *("format", "revision", "digest", "epoch", "about", "rebuild_of", "gated_until_ms"),
    *("rebuilding_until_ms", "refresh_after", "unheard_since_ms", "lost_with", "sums_counted_to"),
}


def _content_names(found: Mapping[str, str]) -> set[str]:
    return set(found) - _NOT_CONTENT
