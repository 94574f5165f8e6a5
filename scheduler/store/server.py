"""What a server says of itself, and whether it can hold the ledger."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scheduler.errors import StoreUnusable

OLDEST_REDIS = (6, 2)


def parse_info(reply: bytes | str) -> dict[str, str]:
    """The `name:value` lines of INFO."""
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs}


def check_fit(server: Mapping[str, str], replication: Mapping[str, str], where: str) -> None:
    """Raises StoreUnusable for a server that is too old or a replica. Valkey counts by the Redis it stands for."""
    found = server.get("redis_version", "")
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if version < OLDEST_REDIS:
        raise StoreUnusable(f"the ledger at {where} runs Redis {found or '(unknown)'}; 6.2 or later is needed")
    if replication.get("role") in ("slave", "replica"):
        raise StoreUnusable(f"the ledger at {where} is a read-only replica; give the primary's address")
