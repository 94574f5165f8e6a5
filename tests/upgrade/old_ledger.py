"""The ledger of version 0.1 that tests/data keeps, put into a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scheduler.connection.keys import Keys

DATA = Path(__file__).parents[1] / "data"
OLD: dict[str, Any] = json.loads((DATA / "ledger-0.1.json").read_text(encoding="utf-8"))
SCRIPTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DATA / "scripts-0.1").glob("*.lua"))}
HOUR_MS = 3_600_000


async def put_old_ledger(client: Any, keys: Keys) -> None:
    """As version 0.1 left it; `client` is a raw one."""
    for name, entry in OLD["keys"].items():
        key, value = keys.named(name), entry["value"]
        match entry["type"]:
            case "hash":
                await client.hset(key, mapping=value)
            case "zset":
                await client.zadd(key, value)
            case "set":
                await client.sadd(key, *value)
            case "list":
                await client.rpush(key, *value)
            case "string":
                await client.set(key, value)
        if entry.get("has_ttl"):
            await client.pexpire(key, HOUR_MS)


async def contents(client: Any, keys: Keys) -> dict[str, Any]:
    """Every key of the domain with what it holds."""
    found: dict[str, Any] = {}
    async for key in client.scan_iter(keys.pattern):
        match await client.type(key):
            case "hash":
                found[key] = await client.hgetall(key)
            case "zset":
                found[key] = await client.zrange(key, 0, -1, withscores=True)
            case "set":
                found[key] = await client.smembers(key)
            case "list":
                found[key] = await client.lrange(key, 0, -1)
            case _:
                found[key] = await client.get(key)
    return found
