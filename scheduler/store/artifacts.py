"""The shared index of P2P artifacts, and the nodes that take part."""

from __future__ import annotations

from scheduler.domain.node import P2pEndpoint
from scheduler.domain.sandbox import ArtifactKey
from scheduler.errors import NodeNotListed
from scheduler.store import codec
from scheduler.store.runner import Runner

NOT_LISTED = "node is not in scheduler node list"

Peer = tuple[str, P2pEndpoint]


class ArtifactStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def record(self, artifact: ArtifactKey, node_id: str) -> None:
        """Note that a listed node can serve it; the key becomes the most recent one. Raises NodeNotListed."""
        status, _ = await self._runner.run("record_artifact", *_parts(artifact), node_id)
        if status == "unlisted":
            raise NodeNotListed(NOT_LISTED)

    async def forget(self, artifact: ArtifactKey, node_id: str) -> None:
        """The node can serve it no more; nothing to forget is fine."""
        await self._runner.run("forget_artifact", *_parts(artifact), node_id)

    async def lookup(self, artifact: ArtifactKey, exclude_node_id: str = "") -> tuple[Peer, ...]:
        """Ready providers, each once, in no order, up to the limit of the settings; the key becomes the most recent."""
        found: dict[str, P2pEndpoint] = {}
        cursor = "0"
        while True:
            _, (next_cursor, *pairs) = await self._runner.run(
                "lookup_artifact", *_parts(artifact), exclude_node_id, cursor, len(found)
            )
            told = iter(codec.text(part) for part in pairs)
            found |= {
                node_id: P2pEndpoint(artifact.backend, address) for node_id, address in zip(told, told, strict=True)
            }
            cursor = codec.text(next_cursor)
            if cursor == "0":
                return tuple(found.items())

    async def peers(self, cluster_id: str = "", backend: str = "", exclude_node_id: str = "") -> tuple[Peer, ...]:
        """Every ready node with a P2P endpoint, in id order; "" filters nothing."""
        found: list[Peer] = []
        after = ""
        while True:
            _, (last, *triplets) = await self._runner.run("list_peers", cluster_id, backend, exclude_node_id, after)
            told = iter(codec.text(part) for part in triplets)
            found += [
                (node_id, P2pEndpoint(node_backend, address))
                for node_id, node_backend, address in zip(told, told, told, strict=True)
            ]
            after = codec.text(last)
            if not after:
                return tuple(found)


def _parts(artifact: ArtifactKey) -> tuple[str, str, str]:
    return artifact.cluster_id, artifact.backend, artifact.key
