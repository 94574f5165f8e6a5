"""Copies the ledger's bindings to the keys of AgentENV's own scheduler.

For AgentENV's query-only replicas that read the same Redis:

    agentenv:scheduler:bindings:sandbox:<id>   {"node":{"node_id":…,"endpoint":…}}, with the binding's remaining TTL
    agentenv:scheduler:bindings:node:<id>      the reverse set, with a TTL of an hour

Every call that may have changed a binding passes the sandbox to `follow`, which updates its key from the ledger;
`refresh` does so for all of them before their TTL ends. The ledger is read before and after each write, so the last
of several replicas to write has seen the present binding. A key is deleted only when it names the node that lost the
sandbox; another scheduler may have written any other.

These keys carry no hash tag, so no script can reach them and a Redis Cluster cannot hold them; and they have no
domain, so only one domain per server may have this switched on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from scheduler.connection.exchange import Command
from scheduler.domain.node import NodeAddress
from scheduler.errors import SchedulerError
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

PREFIX = "agentenv:scheduler:bindings"
REVERSE_TTL_MS = 3_600_000
SLICE = 250
_LOOKS_AT_MOST = 5


def sandbox_key(sandbox_id: str) -> str:
    return f"{PREFIX}:sandbox:{sandbox_id}"


def node_key(node_id: str) -> str:
    return f"{PREFIX}:node:{node_id}"


@dataclass(frozen=True, slots=True)
class _Bound:
    """Where a sandbox is bound, and for how long."""

    node: NodeAddress
    left_ms: int


class UpstreamBindings:
    """`lapses` counts failed updates; the next refresh repeats them."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.lapses = 0

    async def follow(self, sandbox_ids: Iterable[str], lost_by: str | None = None) -> None:
        """Update the keys of these sandboxes from the ledger. `lost_by`: the node whose keys may be deleted.

        The ledger has decided when this is called, so a failure here fails no request."""
        try:
            for chunk in _slices(list(sandbox_ids)):
                await self._follow(chunk, lost_by)
        except SchedulerError:
            self.lapses += 1

    async def forget(self, node_id: str) -> None:
        """The node was unregistered: the keys that its reverse set still names may be deleted."""
        try:
            async for page in self._named_by(node_id):
                for chunk in _slices(page):
                    await self._follow(chunk, node_id)
        except SchedulerError:
            self.lapses += 1

    async def refresh(self) -> int:
        """Write every binding's key again and delete the other keys of listed nodes. Returns the binding TTL."""
        cursor = "0"
        while True:
            cursor, ttl_ms, bound = await self._read(cursor)
            for chunk in _slices(list(bound)):
                await self._follow(chunk, None)
            if cursor == "0":
                break
        for node_id in await self._listed_nodes():
            await self._tidy(node_id)
        return ttl_ms

    # -- one slice --------------------------------------------------------------------------------------------

    async def _follow(self, sandbox_ids: Sequence[str], lost_by: str | None) -> None:
        written: dict[str, NodeAddress] | None = None
        for _ in range(_LOOKS_AT_MOST):
            _, _, bound = await self._read("", *sandbox_ids)
            truth = {sandbox_id: binding.node for sandbox_id, binding in bound.items()}
            if truth == written:
                return
            await self._write(bound)
            if lost_by is not None:
                await self._delete([each for each in sandbox_ids if each not in _held_by(lost_by, bound)], lost_by)
            written = truth

    async def _write(self, bound: dict[str, _Bound]) -> None:
        replies = await self._runner.client.pipeline(_writing(bound))
        moved: dict[str, list[str]] = defaultdict(list)
        for (sandbox_id, binding), text in zip(bound.items(), replies, strict=False):
            before = _named_node(text)
            if before is not None and before != binding.node.node_id:
                moved[before].append(sandbox_id)
        await self._runner.client.pipeline([("SREM", node_key(before), *ids) for before, ids in moved.items()])

    async def _delete(self, sandbox_ids: Sequence[str], node_id: str) -> None:
        """Delete the keys that still name the node, and their entries in its reverse set."""
        if not sandbox_ids:
            return
        client = self._runner.client
        texts = await client.pipeline([("GET", sandbox_key(sandbox_id)) for sandbox_id in sandbox_ids])
        stale = [each for each, text in zip(sandbox_ids, texts, strict=True) if _named_node(text) == node_id]
        if stale:
            await client.command("DEL", *map(sandbox_key, stale))
        await client.command("SREM", node_key(node_id), *sandbox_ids)

    async def _tidy(self, node_id: str) -> None:
        """Delete entries of the reverse set that the ledger no longer binds to the node."""
        async for page in self._named_by(node_id):
            for chunk in _slices(page):
                _, _, bound = await self._read("", *chunk)
                held = _held_by(node_id, bound)
                if gone := [sandbox_id for sandbox_id in chunk if sandbox_id not in held]:
                    await self._follow(gone, node_id)

    # -- reading ----------------------------------------------------------------------------------------------

    async def _read(self, cursor: str, *sandbox_ids: str) -> tuple[str, int, dict[str, _Bound]]:
        _, (next_cursor, ttl_ms, *entries) = await self._runner.run("list_bindings", cursor, *sandbox_ids)
        words = iter(codec.text(word) for word in entries)
        bound = {
            sandbox_id: _Bound(NodeAddress(node_id, endpoint), int(left_ms))
            for sandbox_id, node_id, endpoint, left_ms in zip(words, words, words, words, strict=True)
        }
        return codec.text(next_cursor), int(ttl_ms), bound

    async def _named_by(self, node_id: str) -> AsyncIterator[list[str]]:
        """The node's reverse set, page by page."""
        cursor = b"0"
        while True:
            cursor, page = await self._runner.client.command("SSCAN", node_key(node_id), cursor, "COUNT", SLICE)
            yield [codec.text(sandbox_id) for sandbox_id in page]
            if int(cursor) == 0:
                return

    async def _listed_nodes(self) -> list[str]:
        return [
            codec.text(each) for each in await self._runner.client.command("ZRANGE", self._runner.keys.nodes, 0, -1)
        ]


def _slices(sandbox_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (sandbox_ids[first : first + SLICE] for first in range(0, len(sandbox_ids), SLICE))


def _held_by(node_id: str, bound: dict[str, _Bound]) -> set[str]:
    return {sandbox_id for sandbox_id, binding in bound.items() if binding.node.node_id == node_id}


def _writing(bound: dict[str, _Bound]) -> list[Command]:
    """One SET per binding, in order, each returning the former value; then the reverse sets."""
    commands: list[Command] = []
    held: dict[str, list[str]] = defaultdict(list)
    for sandbox_id, binding in bound.items():
        node = {"node_id": binding.node.node_id, "endpoint": binding.node.endpoint}
        value = json.dumps({"node": node}, separators=(",", ":"))
        commands.append(("SET", sandbox_key(sandbox_id), value, "PX", binding.left_ms, "GET"))
        held[binding.node.node_id].append(sandbox_id)
    for node_id, sandbox_ids in held.items():
        commands += [("SADD", node_key(node_id), *sandbox_ids), ("PEXPIRE", node_key(node_id), REVERSE_TTL_MS)]
    return commands


def _named_node(text: bytes | None) -> str | None:
    """The node that a key names; None for a value that AgentENV would not accept either."""
    try:
        found = json.loads(text or b"null")
        name = found["node"]["node_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return name if isinstance(name, str) else None
