"""The settings in force, the live replicas, and the whole ledger on one page."""

from __future__ import annotations

from typing import Any

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import ReplicasAnswer, SettingsAnswer, SummaryAnswer
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import replica_view, settings_view, summary_view
from scheduler.ledger.agreement import settings_in_force

router = noun_router("agreement")


@router.get("/v1/settings", response_model=SettingsAnswer, summary="The settings in force")
@reach(FOR_GATEWAYS)
async def read_settings(call: Call) -> Any:
    services = call.services
    return settings_view(await services.measured("read_settings", settings_in_force(services.ledger)))


@router.get("/v1/replicas", response_model=ReplicasAnswer, summary="The replicas that are alive")
@reach(FOR_GATEWAYS)
async def list_replicas(call: Call) -> Any:
    ledger = call.services.ledger
    with call.services.metrics.ledger_call("list_replicas"):
        now_ms = await ledger.time.now_ms()
        replicas = await ledger.settings.replicas(now_ms)
    return {"replicas": [replica_view(replica) for replica in replicas], "now_ms": now_ms}


@router.get("/v1/summary", response_model=SummaryAnswer, summary="The whole ledger on one page")
@reach(FOR_GATEWAYS)
async def read_summary(call: Call) -> Any:
    services = call.services
    return summary_view(await services.measured("read_summary", services.ledger.summary.read()))
