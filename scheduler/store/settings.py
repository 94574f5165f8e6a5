"""The settings that all replicas share, and the list of live replicas."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b

from scheduler.domain.placement import Strategy
from scheduler.domain.replica import LiveReplica
from scheduler.domain.settings import (
    Admission,
    AvoidSettings,
    GroupPlacement,
    GroupSettings,
    LedgerSettings,
    Limits,
    NodeResourceLimit,
)
from scheduler.errors import StoreUnavailable
from scheduler.store import codec
from scheduler.store.runner import FORMAT, Runner, not_understood

LIMIT_NAMES = tuple(limit.name for limit in fields(NodeResourceLimit))
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


def encode(settings: LedgerSettings) -> dict[str, str]:
    """The fields of the `settings` hash, readable with redis-cli."""
    groups = settings.groups

    def overcommit(value: int | None) -> str:
        return "unlimited" if value is None else str(value)

    # Fields that placements read come first: Redis scans a small hash from its beginning.
    content = {
        "strategy": settings.strategy.value,
        "admission": settings.admission.value,
        "locality_enabled": str(int(settings.locality_enabled)),
        "report_ttl_ms": str(settings.report_ttl_ms),
        "placement_reservation_ttl_ms": str(settings.placement_reservation_ttl_ms),
        "overcommit_cpu": overcommit(settings.overcommit_cpu),
        "overcommit_memory": overcommit(settings.overcommit_memory),
        "limited": str(int(settings.limits is Limits.PENDING and settings.node_resource_limit.counts)),
        "limits": settings.limits.value,
        "binding_ttl_ms": str(settings.binding_ttl_ms),
        "binding_grace_ms": str(settings.binding_grace_ms),
        "group_max_sandbox_count": str(groups.max_sandbox_count),
        "group_max_cpu_count": str(groups.max_cpu_count),
        "group_max_memory_mb": str(groups.max_memory_mb),
        "group_placement": groups.group_placement.value,
        "max_open_groups": str(groups.max_open_groups),
        "cold_default_cpu_count": str(settings.cold_default_cpu_count),
        "cold_default_memory_mb": str(settings.cold_default_memory_mb),
        "avoid_refusals": str(settings.avoid.refusals),
        "avoid_first_ms": str(settings.avoid.first_ms),
        "avoid_longest_ms": str(settings.avoid.longest_ms),
        "avoid_share_percent": str(settings.avoid.share_percent),
        "templates_learn": str(int(settings.templates_learn)),
        "artifact_store_capacity": str(settings.artifact_store_capacity),
        "artifact_lookup_node_limit": str(settings.artifact_lookup_node_limit),
        "self_registration": str(int(settings.self_registration)),
    }
    for name in LIMIT_NAMES:
        limit = getattr(settings.node_resource_limit, name)
        if limit is not None:
            content[name] = str(limit)
    return content


def decode(found: Mapping[str, str]) -> LedgerSettings:
    """Raises StoreUnusable for settings of another version: an unknown format, name or value."""
    if found.get("format") != str(FORMAT):
        raise not_understood("format", found.get("format", ""))
    for name, known in (("strategy", Strategy), ("admission", Admission), ("group_placement", GroupPlacement)):
        if found.get(name) not in list(known):
            raise not_understood(name, found.get(name, ""))
    try:
        return _decode(found)
    except (KeyError, ValueError) as error:
        raise not_understood("settings", str(error)) from error


def _decode(found: Mapping[str, str]) -> LedgerSettings:
    def overcommit(value: str) -> int | None:
        return None if value == "unlimited" else int(value)

    limits = {name: int(found[name]) for name in LIMIT_NAMES if found.get(name)}
    return LedgerSettings(
        strategy=Strategy(found["strategy"]),
        admission=Admission(found["admission"]),
        report_ttl_ms=int(found["report_ttl_ms"]),
        binding_ttl_ms=int(found["binding_ttl_ms"]),
        binding_grace_ms=int(found["binding_grace_ms"]),
        placement_reservation_ttl_ms=int(found["placement_reservation_ttl_ms"]),
        overcommit_cpu=overcommit(found["overcommit_cpu"]),
        overcommit_memory=overcommit(found["overcommit_memory"]),
        node_resource_limit=NodeResourceLimit(**limits),
        limits=Limits(found["limits"]),
        avoid=AvoidSettings(
            refusals=int(found["avoid_refusals"]),
            first_ms=int(found["avoid_first_ms"]),
            longest_ms=int(found["avoid_longest_ms"]),
            share_percent=int(found["avoid_share_percent"]),
        ),
        groups=GroupSettings(
            max_sandbox_count=int(found["group_max_sandbox_count"]),
            max_cpu_count=int(found["group_max_cpu_count"]),
            max_memory_mb=int(found["group_max_memory_mb"]),
            group_placement=GroupPlacement(found["group_placement"]),
            max_open_groups=int(found["max_open_groups"]),
        ),
        cold_default_cpu_count=int(found["cold_default_cpu_count"]),
        cold_default_memory_mb=int(found["cold_default_memory_mb"]),
        templates_learn=found["templates_learn"] == "1",
        artifact_store_capacity=int(found["artifact_store_capacity"]),
        artifact_lookup_node_limit=int(found["artifact_lookup_node_limit"]),
        locality_enabled=found["locality_enabled"] == "1",
        self_registration=found["self_registration"] == "1",
        revision=int(found["revision"]),
    )


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
        """Those that are alive, in id order; at most REPLICAS_MAX."""
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
        """Register this replica as live for another `ttl_ms`. None: the ledger is empty. sign_of_life.lua"""
        try:
            _, reply = await self._runner.run("sign_of_life", replica_id, ttl_ms)
        except StoreUnavailable as error:
            if "no settings" in error.detail:
                return None
            raise
        epoch, revision, digest, refreshing, skew_ms, now_ms, *replicas = map(codec.text, reply)
        self._runner.memory.note_time(int(now_ms))
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
    *("format", "revision", "digest", "epoch", "rebuild_of", "gated_until_ms"),
    *("rebuilding_until_ms", "refresh_after", "unheard_since_ms", "lost_with"),
}


def _content_names(found: Mapping[str, str]) -> set[str]:
    return set(found) - _NOT_CONTENT
