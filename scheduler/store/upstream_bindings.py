"""The ledger's bindings once more, under the keys AgentENV's own scheduler uses.

For AgentENV's query-only replicas that read the same Redis:

    agentenv:scheduler:bindings:sandbox:<id>   {"node":{"node_id":…,"endpoint":…}}, with the TTL the binding has left
    agentenv:scheduler:bindings:node:<id>      the reverse set, with a TTL of an hour

Whatever may have changed a binding names the sandbox here, and `follow` brings its key to what the ledger says;
`refresh` does so for all of them, before their TTL is over. Nothing is written from memory: the ledger is read
first, and read again after writing, so that of several replicas the last to write has seen the truth. A key is
deleted only when it names the node that lost the sandbox; another one may be somebody else's word.

These keys carry no hash tag, so no script can reach them and a Redis Cluster cannot hold them; and
they know no domain: of the domains on one server, one may have this switched on.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from scheduler.domain.node import NodeAddress
from scheduler.errors import SchedulerError
from scheduler.store import codec
from scheduler.store.exchange import Command
from scheduler.store.runner import Runner

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
    node: NodeAddress
    left_ms: int


class UpstreamBindings:
    """`lapses`: how often following was given up; the next refresh makes up for it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.lapses = 0

    async def follow(self, sandbox_ids: Iterable[str], lost_by: str | None = None) -> None:
        """Bring the keys of these to what the ledger says. `lost_by`: the node whose key may go.

        The ledger has taken its decision when this is called, so trouble here fails nobody's request."""
        try:
            for chunk in _slices(list(sandbox_ids)):
                await self._follow(chunk, lost_by)
        except SchedulerError:
            self.lapses += 1

    async def forget(self, node_id: str) -> None:
        """The node was unregistered: all that its reverse set still names may go."""
        try:
            async for page in self._named_by(node_id):
                for chunk in _slices(page):
                    await self._follow(chunk, node_id)
        except SchedulerError:
            self.lapses += 1

    async def refresh(self) -> int:
        """Every key there should be, written again; every other one of a listed node deleted. The binding TTL."""
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
        """Those keys that still name the node, and their places in its reverse set."""
        if not sandbox_ids:
            return
        client = self._runner.client
        texts = await client.pipeline([("GET", sandbox_key(sandbox_id)) for sandbox_id in sandbox_ids])
        stale = [each for each, text in zip(sandbox_ids, texts, strict=True) if _named_node(text) == node_id]
        if stale:
            await client.command("DEL", *map(sandbox_key, stale))
        await client.command("SREM", node_key(node_id), *sandbox_ids)

    async def _tidy(self, node_id: str) -> None:
        """What the reverse set names although the ledger no longer binds it there."""
        async for page in self._named_by(node_id):
            for chunk in _slices(page):
                _, _, bound = await self._read("", *chunk)
                held = _held_by(node_id, bound)
                if gone := [sandbox_id for sandbox_id in chunk if sandbox_id not in held]:
                    await self._follow(gone, node_id)

    # -- reading ----------------------------------------------------------------------------------------------

    async def _read(self, cursor: str, *sandbox_ids: str) -> tuple[str, int, dict[str, _Bound]]:
        _, (next_cursor, ttl_ms, *told) = await self._runner.run("list_bindings", cursor, *sandbox_ids)
        words = iter(codec.text(word) for word in told)
        bound = {
            sandbox_id: _Bound(NodeAddress(node_id, endpoint), int(left_ms))
            for sandbox_id, node_id, endpoint, left_ms in zip(words, words, words, words, strict=True)
        }
        return codec.text(next_cursor), int(ttl_ms), bound

    async def _named_by(self, node_id: str) -> AsyncIterator[list[str]]:
        """The reverse set, a page at a time."""
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
    """One SET per binding, in their order, each telling what was there; then the reverse sets."""
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
    """The node a key names; None for what AgentENV would not read as a binding either."""
    try:
        found = json.loads(text or b"null")
        name = found["node"]["node_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return name if isinstance(name, str) else None
