"""The shared index of P2P artifacts: which node provides which artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.domain.node import P2pEndpoint
from scheduler.domain.sandbox import ArtifactKey
from scheduler.observability.metrics import Metrics
from scheduler.service.checks import clean_id, clean_optional_id, required
from scheduler.service.peer_lists import PeerLists, Peers

if TYPE_CHECKING:
    from scheduler.ledger.artifacts import ArtifactStore

# Keys are opaque paths chosen by nodes, and longer than ids.
KEY_BYTES_MAX = 1024


class ArtifactService:
    def __init__(self, store: ArtifactStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._peer_lists = PeerLists(self._read_peers)

    async def record(self, artifact: ArtifactKey, node_id: str) -> tuple[ArtifactKey, str]:
        """Adds the node as a provider; returns both as recorded. Raises NodeNotListed for a node that discovery does
        not list."""
        artifact, node_id = _clean_entry(artifact, node_id)
        with self._metrics.ledger_call("record_artifact"):
            await self._store.record(artifact, node_id)
        return artifact, node_id

    async def forget(self, artifact: ArtifactKey, node_id: str) -> tuple[ArtifactKey, str]:
        """Removes the node as a provider; an unknown entry is no error. Returns both."""
        artifact, node_id = _clean_entry(artifact, node_id)
        with self._metrics.ledger_call("forget_artifact"):
            await self._store.forget(artifact, node_id)
        return artifact, node_id

    async def lookup(self, artifact: ArtifactKey, exclude_node_id: str = "") -> tuple[tuple[str, P2pEndpoint], ...]:
        """The ready providers with a P2P endpoint, except the asking node."""
        required(
            "cluster_id, backend, and key are required",
            cluster_id=artifact.cluster_id,
            backend=artifact.backend,
            key=artifact.key,
        )
        artifact = _clean_key(artifact)
        exclude_node_id = clean_optional_id("exclude_node_id", exclude_node_id)
        with self._metrics.ledger_call("lookup_artifact"):
            return await self._store.lookup(artifact, exclude_node_id)

    async def peers(self, cluster_id: str = "", backend: str = "", exclude_node_id: str = "") -> Peers:
        """Every ready node with a P2P endpoint; a blank filter matches all. A long list may be a second old."""
        cluster_id = clean_optional_id("cluster_id", cluster_id)
        backend = clean_optional_id("backend", backend)
        exclude_node_id = clean_optional_id("exclude_node_id", exclude_node_id)
        peers = await self._peer_lists.get(cluster_id, backend)
        return tuple(peer for peer in peers if peer[0] != exclude_node_id)

    async def _read_peers(self, cluster_id: str, backend: str) -> Peers:
        with self._metrics.ledger_call("list_peers"):
            return await self._store.peers(cluster_id, backend)


def _clean_key(artifact: ArtifactKey) -> ArtifactKey:
    return ArtifactKey(
        cluster_id=clean_id("cluster_id", artifact.cluster_id),
        backend=clean_id("backend", artifact.backend),
        key=clean_id("key", artifact.key, most_bytes=KEY_BYTES_MAX),
    )


def _clean_entry(artifact: ArtifactKey, node_id: str) -> tuple[ArtifactKey, str]:
    required(
        "cluster_id, backend, key, and node_id are required",
        cluster_id=artifact.cluster_id,
        backend=artifact.backend,
        key=artifact.key,
        node_id=node_id,
    )
    return _clean_key(artifact), clean_id("node_id", node_id)
