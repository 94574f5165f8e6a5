"""The shared P2P artifact index."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_NODES, FOR_NODES_AND_GATEWAYS
from scheduler.api.http.answers import Answer, P2pEndpointAnswer
from scheduler.api.http.fields import ArtifactName, Body, Id, OptionalId
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import peers_view
from scheduler.domain.sandbox import ArtifactKey

router = noun_router("artifacts")


class PeerAnswer(Answer):
    node_id: str
    endpoint: P2pEndpointAnswer


class PeersAnswer(Answer):
    peers: list[PeerAnswer]


class ArtifactAnswer(Answer):
    cluster_id: str
    backend: str
    key: str
    node_id: str


class ArtifactBody(Body):
    cluster_id: Id
    backend: Id
    key: ArtifactName
    node_id: Id


@router.put("/v1/artifacts", response_model=ArtifactAnswer, summary="A node can serve an artifact")
@reach(FOR_NODES)
async def record_artifact(call: Call, body: ArtifactBody) -> Any:
    call.act_for(body.node_id)
    artifact = ArtifactKey(body.cluster_id, body.backend, body.key)
    return _entry(*await call.services.artifacts.record(artifact, body.node_id))


@router.delete("/v1/artifacts", response_model=ArtifactAnswer, summary="A node can no longer serve an artifact")
@reach(FOR_NODES)
async def forget_artifact(call: Call, cluster_id: Id, backend: Id, key: ArtifactName, node_id: Id) -> Any:
    call.act_for(node_id)
    return _entry(*await call.services.artifacts.forget(ArtifactKey(cluster_id, backend, key), node_id))


@router.get("/v1/artifacts", response_model=PeersAnswer, summary="Which ready nodes can serve an artifact")
@reach(FOR_NODES_AND_GATEWAYS)
async def lookup_artifact(
    call: Call, cluster_id: Id, backend: Id, key: ArtifactName, exclude_node_id: OptionalId = ""
) -> Any:
    artifact = ArtifactKey(cluster_id, backend, key)
    return peers_view(await call.services.artifacts.lookup(artifact, exclude_node_id))


def _entry(artifact: ArtifactKey, node_id: str) -> dict[str, str]:
    return {
        "cluster_id": artifact.cluster_id,
        "backend": artifact.backend,
        "key": artifact.key,
        "node_id": node_id,
    }
