"""Recounts the ledger in one atomic step, again and again, while everything else goes on.

The script is the harness's own and shares nothing with the product's: it reads what redis-cli would show and
adds it up in the plainest way. What it finds is kept; nothing is forgiven because it was gone a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import redis

from scheduler.connection.keys import DEFAULT_DOMAIN, Keys
from tests.support.servers import RedisServer

RECOUNT = """
local prefix = string.match(KEYS[1], '^(.*:)')
local found, loads = {}, redis.call('HGETALL', prefix .. 'loads')
for index = 1, #loads, 2 do
  local node, figures = loads[index], {}
  for part in string.gmatch(loads[index + 1], '[^,]+') do figures[#figures + 1] = tonumber(part) or part end
  local cpu, memory, count, orphans = 0, 0, 0, 0
  for _, id in ipairs(redis.call('ZRANGE', prefix .. 'node:' .. node .. ':reservations', 0, -1)) do
    local r = redis.call('HMGET', prefix .. 'reservation:' .. id, 'state', 'node_id', 'cpu_count', 'memory_bytes',
      'held_cpu', 'held_memory', 'held_count', 'orphaned')
    if r[1] ~= 'pending' and r[1] ~= 'confirmed' then
      found[#found + 1] = node .. ' lists ' .. id .. ' as open, which is ' .. tostring(r[1])
    elseif r[2] ~= node then
      found[#found + 1] = node .. ' lists ' .. id .. ', which is on ' .. tostring(r[2])
    else
      cpu, memory, count = cpu + (r[5] or r[3]), memory + (r[6] or r[4]), count + (r[7] or 1)
      if r[8] == '1' then orphans = orphans + 1 end
    end
  end
  -- What the load already holds of them is not counted twice; `inspect check` weighs it anew.
  local discount = redis.call('HMGET', prefix .. 'node:' .. node, 'discount_cpu', 'discount_memory', 'discount_count')
  cpu, memory, count = cpu - (discount[1] or 0), memory - (discount[2] or 0), count - (discount[3] or 0)
  if cpu ~= figures[9] or memory ~= figures[10] or count ~= figures[11] then
    found[#found + 1] = string.format('%s counts %.0f CPUs, %.0f bytes, %.0f pending, but they are %.0f, %.0f, %.0f',
      node, figures[9], figures[10], figures[11], cpu, memory, count)
  end
  if ARGV[1] == '1' and orphans == 0 then
    if figures[2] >= 0 and figures[4] + cpu > figures[2] then
      found[#found + 1] = string.format('%s admitted %.0f of %.0f CPUs', node, figures[4] + cpu, figures[2])
    end
    if figures[3] >= 0 and figures[5] + memory > figures[3] then
      found[#found + 1] = string.format('%s admitted %.0f of %.0f bytes', node, figures[5] + memory, figures[3])
    end
  end
end
return found
"""


@dataclass(slots=True)
class Watch:
    """What one watch saw."""

    recounts: int = 0
    violations: list[str] = field(default_factory=list)


def recount_once(server: RedisServer, *, admission: bool = True, domain: str = DEFAULT_DOMAIN) -> list[str]:
    """What is wrong right now. `admission`: also that no node is over its capacity."""
    with server.client(socket_timeout=15) as client:
        found: list[str] = client.eval(RECOUNT, 1, Keys(domain).settings, int(admission))  # type: ignore[assignment]
        return found


@contextlib.asynccontextmanager
async def watching(
    server: RedisServer, *, admission: bool = True, interval_seconds: float = 0.25, domain: str = DEFAULT_DOMAIN
) -> AsyncIterator[Watch]:
    """Recount while the block runs. A server that cannot be asked is skipped: it is what the tests break."""
    watch = Watch()

    async def look() -> None:
        while True:
            try:
                found = await asyncio.to_thread(recount_once, server, admission=admission, domain=domain)
            except redis.exceptions.RedisError:
                found = []
            else:
                watch.recounts += 1
            watch.violations += found
            await asyncio.sleep(interval_seconds)

    looking = asyncio.create_task(look())
    try:
        yield watch
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
