"""Who a Redis server is, by INFO, whether it can hold the ledger, and how well."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.errors import StoreUnusable

OLDEST_REDIS = (6, 2)
# Replicas acknowledge every second; Redis' own min-replicas-max-lag is the same.
_REPLICA_LAG_SECONDS_MAX = 10


def parse_info(reply: bytes | str) -> dict[str, str]:
    """The `name:value` lines of INFO."""
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The server's process (`run_id`) and its history of writes (`replication_id`). Both None on the embedded ledger.

    The replication id changes when a replica is promoted (then `followed` is the id of the history it copied), and
    when a server gets its first replica."""

    run_id: str | None = None
    replication_id: str | None = None
    followed: str | None = None

    @classmethod
    def of(cls, info: Mapping[str, str]) -> ServerIdentity:
        """From INFO's sections `server` and `replication`."""
        followed = info.get("master_replid2", "").strip("0") and info["master_replid2"]
        return cls(info.get("run_id"), info.get("master_replid"), followed or None)

    @property
    def name(self) -> str:
        return f"{self.run_id}:{self.replication_id}" if self.run_id else "this process"

    def is_same(self, other: ServerIdentity) -> bool:
        return self.run_id == other.run_id and self.replication_id == other.replication_id

    def may_lack_writes_of(self, other: ServerIdentity) -> bool:
        """Whether a write that `other` acknowledged can be missing here."""
        return self.run_id != other.run_id or (
            self.replication_id != other.replication_id and self.followed is not None
        )


def replicas_online(replication: Mapping[str, str]) -> int | None:
    """How many replicas can confirm a write, by INFO's section `replication`: online, and heard of lately. None when
    the server does not say."""
    told = [value for name, value in replication.items() if re.fullmatch(r"slave\d+", name)]
    if not told:
        count = replication.get("connected_slaves", "")
        return int(count) if count.isdecimal() else None
    return sum(_is_online(dict(part.partition("=")[::2] for part in each.split(","))) for each in told)


def _is_online(replica: Mapping[str, str]) -> bool:
    lag = replica.get("lag", "")
    late = lag.isdecimal() and int(lag) > _REPLICA_LAG_SECONDS_MAX
    return replica.get("state") == "online" and not late


def check_fit(server: Mapping[str, str], replication: Mapping[str, str], where: str) -> None:
    """Raises StoreUnusable for a server that is too old or a replica. Valkey names a Redis version too."""
    found = server.get("redis_version", "")
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if version < OLDEST_REDIS:
        raise StoreUnusable(f"the ledger runs Redis {found or '(unknown)'}; 6.2 or later is needed").at(where)
    if replication.get("role") in ("slave", "replica"):
        raise StoreUnusable("the ledger is a read-only replica; give the primary's address").at(where)


def hazards(memory: Mapping[str, str], persistence: Mapping[str, str]) -> tuple[str, ...]:
    """What in the server's configuration may cost the ledger keys, a sentence each; INFO may tell none of it."""
    found: list[str] = []
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and memory.get("maxmemory", "0") != "0":
        ending = policy.startswith("volatile-")
        lost = (
            "keys that end by themselves, as reservations that are over do"
            if ending
            else "any key, open reservations too"
        )
        found.append(f"maxmemory-policy is {policy}: at maxmemory the server throws away {lost}; set it to noeviction")
    if persistence.get("aof_enabled") == "0":
        found.append("appendonly is no: a restart of the server loses what no snapshot holds, or all; set it to yes")
    return tuple(found)
