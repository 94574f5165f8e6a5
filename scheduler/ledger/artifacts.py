"""The shared index of P2P artifacts and the nodes that provide them."""

from __future__ import annotations

from scheduler.domain.node import P2pEndpoint
from scheduler.domain.sandbox import ArtifactKey
from scheduler.errors import NodeNotListed
from scheduler.ledger import codec
from scheduler.ledger.runner import Runner

NOT_LISTED = "node is not in scheduler node list"

Peer = tuple[str, P2pEndpoint]


class ArtifactStore:
    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def record(self, artifact: ArtifactKey, node_id: str) -> None:
        """Adds the node as a provider of the artifact, which becomes the most recent one. Raises NodeNotListed."""
        status, _ = await self._runner.run("record_artifact", *_parts(artifact), node_id)
        if status == "unlisted":
            raise NodeNotListed(NOT_LISTED)

    async def forget(self, artifact: ArtifactKey, node_id: str) -> None:
        """Removes a node as provider of an artifact; an unknown entry is no error."""
        await self._runner.run("forget_artifact", *_parts(artifact), node_id)

    async def lookup(self, artifact: ArtifactKey, exclude_node_id: str = "") -> tuple[Peer, ...]:
        """The ready providers, each once, in no order, at most `artifact_lookup_node_limit`; the artifact becomes
        the most recent."""
        found: dict[str, P2pEndpoint] = {}
        cursor = "0"
        while True:
            _, (next_cursor, *pairs) = await self._runner.run(
                "lookup_artifact", *_parts(artifact), exclude_node_id, cursor, len(found)
            )
            reply = iter(codec.text(part) for part in pairs)
            found |= {
                node_id: P2pEndpoint(artifact.backend, address) for node_id, address in zip(reply, reply, strict=True)
            }
            cursor = codec.text(next_cursor)
            if cursor == "0":
                return tuple(found.items())

    async def peers(self, cluster_id: str = "", backend: str = "", exclude_node_id: str = "") -> tuple[Peer, ...]:
        """Every ready node with a P2P endpoint, in id order; "" does not filter."""
        found: list[Peer] = []
        after = ""
        while True:
            _, (last, *triplets) = await self._runner.run("list_peers", cluster_id, backend, exclude_node_id, after)
            reply = iter(codec.text(part) for part in triplets)
            found += [
                (node_id, P2pEndpoint(node_backend, address))
                for node_id, node_backend, address in zip(reply, reply, reply, strict=True)
            ]
            after = codec.text(last)
            if not after:
                return tuple(found)


def _parts(artifact: ArtifactKey) -> tuple[str, str, str]:
    return artifact.cluster_id, artifact.backend, artifact.key
