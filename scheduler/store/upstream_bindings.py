"""The ledger's bindings once more, under the keys AgentENV's own scheduler uses.

For AgentENV's query-only replicas that read the same Redis. One replica, under a lease, keeps them
equal to the ledger: what is new or moved is written, what ended is deleted, and what stands is
written again after a third of its TTL. An assignment is written at once, by whoever took it.

These keys carry no hash tag, so no script can reach them and a Redis Cluster cannot hold them; and
they know no domain: of the domains on one server, one may have this switched on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scheduler.domain.node import NodeAddress
from scheduler.store import codec
from scheduler.store.exchange import Command
from scheduler.store.runner import Runner

PREFIX = "agentenv:scheduler:bindings"
REVERSE_TTL_MS = 3_600_000
_COMMANDS_AT_ONCE = 500


def sandbox_key(sandbox_id: str) -> str:
    return f"{PREFIX}:sandbox:{sandbox_id}"


def node_key(node_id: str) -> str:
    return f"{PREFIX}:node:{node_id}"


@dataclass(frozen=True, slots=True)
class _Written:
    node: NodeAddress
    at: float


class UpstreamBindings:
    """`follow` is one round of keeping equal; `forget` makes the next one write everything."""

    def __init__(self, runner: Runner, clock: Callable[[], float] = time.monotonic) -> None:
        self._runner = runner
        self._clock = clock
        self._written: dict[str, _Written] = {}

    async def write(self, sandbox_id: str, node: NodeAddress) -> None:
        """One binding, now."""
        ttl_ms = await self._runner.client.command("HGET", self._runner.keys.settings, "binding_ttl_ms")
        await self._runner.client.pipeline(_writing(sandbox_id, node, codec.number(ttl_ms)))

    def forget(self) -> None:
        """Another replica may have written since: nothing is taken for known."""
        self._written.clear()

    async def follow(self) -> int:
        """Brings the keys to what the ledger says; how many bindings were written or deleted."""
        bindings, ttl_ms = await self._read()
        now = self._clock()
        due = [
            (sandbox_id, node)
            for sandbox_id, node in bindings.items()
            if not self._stands(sandbox_id, node, now, ttl_ms / 3000)
        ]
        await self._send(command for sandbox_id, node in due for command in _writing(sandbox_id, node, ttl_ms))
        ended = [sandbox_id for sandbox_id in self._written if sandbox_id not in bindings]
        await self._send(
            command for sandbox_id in ended for command in _deleting(sandbox_id, self._written[sandbox_id].node)
        )
        self._written |= {sandbox_id: _Written(node, now) for sandbox_id, node in due}
        for sandbox_id in ended:
            del self._written[sandbox_id]
        return len(due) + len(ended)

    def _stands(self, sandbox_id: str, node: NodeAddress, now: float, refresh_seconds: float) -> bool:
        written = self._written.get(sandbox_id)
        return written is not None and written.node == node and now - written.at < refresh_seconds

    async def _read(self) -> tuple[dict[str, NodeAddress], int]:
        bindings: dict[str, NodeAddress] = {}
        cursor = "0"
        while True:
            _, (next_cursor, ttl_ms, *told) = await self._runner.run("list_bindings", cursor)
            words = iter(codec.text(word) for word in told)
            for sandbox_id, node_id, endpoint in zip(words, words, words, strict=True):
                bindings[sandbox_id] = NodeAddress(node_id, endpoint)
            cursor = codec.text(next_cursor)
            if cursor == "0":
                return bindings, int(ttl_ms)

    async def _send(self, commands: Iterable[Command]) -> None:
        batch = list(commands)
        for start in range(0, len(batch), _COMMANDS_AT_ONCE):
            await self._runner.client.pipeline(batch[start : start + _COMMANDS_AT_ONCE])


def _writing(sandbox_id: str, node: NodeAddress, ttl_ms: int) -> list[Command]:
    value = json.dumps({"node": {"node_id": node.node_id, "endpoint": node.endpoint}}, separators=(",", ":"))
    return [
        ("SET", sandbox_key(sandbox_id), value, "PX", ttl_ms),
        ("SADD", node_key(node.node_id), sandbox_id),
        ("PEXPIRE", node_key(node.node_id), REVERSE_TTL_MS),
    ]


def _deleting(sandbox_id: str, node: NodeAddress) -> list[Command]:
    return [("DEL", sandbox_key(sandbox_id)), ("SREM", node_key(node.node_id), sandbox_id)]
