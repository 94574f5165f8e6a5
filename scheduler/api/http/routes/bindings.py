"""Which node a running sandbox is on."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import Answer, NodeAddressAnswer
from scheduler.api.http.fields import Body, Id, ListedEndpoint
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import address_view
from scheduler.domain.node import NodeAddress

router = noun_router("bindings")


class BindingAnswer(Answer):
    sandbox_id: str
    node: NodeAddressAnswer


class AssignmentBody(Body):
    """The pair exactly as discovery lists it."""

    node_id: Id
    endpoint: ListedEndpoint


@router.get("/v1/bindings/{sandbox_id}", response_model=BindingAnswer, summary="Where a sandbox runs")
@reach(FOR_GATEWAYS)
async def lookup_binding(call: Call, sandbox_id: Id) -> Any:
    binding = await call.services.bindings.lookup(sandbox_id)
    return {"sandbox_id": binding.sandbox_id, "node": address_view(binding.node)}


@router.put("/v1/bindings/{sandbox_id}", response_model=BindingAnswer, summary="Record where a sandbox runs")
@reach(FOR_GATEWAYS)
async def record_binding(call: Call, sandbox_id: Id, body: AssignmentBody) -> Any:
    node = await call.services.bindings.record(sandbox_id, NodeAddress(body.node_id, body.endpoint))
    return {"sandbox_id": sandbox_id, "node": address_view(node)}
