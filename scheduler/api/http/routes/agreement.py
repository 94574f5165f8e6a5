"""The settings in force, the live replicas, and the whole ledger on one page."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from scheduler.access.roles import FOR_GATEWAYS
from scheduler.api.http.answers import Answer, StrategyName
from scheduler.api.http.route import Call, noun_router, reach
from scheduler.api.views import own_settings_view, replica_view, settings_view, summary_view
from scheduler.ledger.agreement import settings_in_force

router = noun_router("agreement")

_REPLICA_ID = "the configured name, or host name and process id, and a random part that is new with each start"


class ReplicaAnswer(Answer):
    replica_id: str = Field(description=_REPLICA_ID)
    expires_at_ms: int = Field(description="when its last keepalive expires, in the ledger's time")


class ReplicasAnswer(Answer):
    replicas: list[ReplicaAnswer] = Field(description="those that are alive, in id order")
    now_ms: int = Field(description="the ledger's time")


class OwnSettingsAnswer(Answer):
    """What the replica that answers is configured with; what is in force may be another one's."""

    replica_id: str = Field(description=_REPLICA_ID)
    settings: dict[str, Any] = Field(description="by name, as those in force")
    sources: dict[str, Any] = Field(
        description="by the same names: `default`, `option`, `environment NAME`, `file NAME` or `image NAME`"
    )


class SettingsAnswer(Answer):
    domain: str = Field(description="which ledger")
    revision: int = Field(description="of the configuration that wrote them; the highest wins")
    epoch: str = Field(description="the random id of this ledger; an emptied one gets a new id")
    rebuilding: bool = Field(description="the ledger was lost, and what is missing may come back")
    clock_skew_ms: int = Field(description="how far the ledger's time is ahead of its server's clock")
    settings: dict[str, Any] = Field(description="by name; durations in milliseconds, null where there is no limit")
    sources: dict[str, Any] = Field(description="by the same names: `default`, or `configuration` where it differs")
    replica: OwnSettingsAnswer | None = Field(description="the replica that answers; null where it is not known")


class LedgerAnswer(Answer):
    epoch: str = Field(description="the random id of this ledger; an emptied one gets a new id")
    rebuilding: bool = Field(description="the ledger was lost, and what is missing may come back")
    clock_skew_ms: int = Field(description="how far the ledger's time is ahead of its server's clock")


class AmountAnswer(Answer):
    """Sums over the nodes that take creations and say what they have. Further resources stand beside, by their
    names."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, int]

    cpu_count: int
    memory_bytes: int


class LargestFreeAnswer(Answer):
    """On one node, each for itself; null where the capacity is not known."""

    cpu_count: int | None = Field(description="the most CPUs that are free on one node")
    memory_bytes: int | None = Field(description="the most memory that is free on one node")


class RatesAnswer(Answer):
    placed: float = Field(description="sandboxes placed")
    refused: dict[str, float] = Field(description="requests refused, by the reason that kept most nodes out")


class SummaryAnswer(Answer):
    domain: str = Field(description="which ledger")
    strategy: StrategyName = Field(description="the strategy in force")
    settings_revision: int = Field(description="of the settings in force")
    ledger: LedgerAnswer = Field(description="the ledger itself")
    now_ms: int = Field(description="the ledger's time")
    replicas: list[str] = Field(description="the ids of those that are alive")
    nodes: dict[str, int] = Field(description="how many there are, by status")
    capacity: AmountAnswer = Field(description="after overcommit")
    allocated: AmountAnswer = Field(description="reported as allocated, to paused sandboxes as well")
    reserved: AmountAnswer = Field(description="held by reservations beyond the reports")
    free: AmountAnswer = Field(description="what capacity and limits leave")
    largest_free: dict[str, LargestFreeAnswer] = Field(description="by class of node: its size, and its labels")
    reservations: dict[str, int] = Field(description="how many there are, by state; finished ones while readable")
    oldest_pending_ms: int | None = Field(description="when the oldest pending one was made; null: none is pending")
    waiting: int = Field(description="requests that wait for capacity")
    rates: RatesAnswer = Field(description="per second, over the last minute")


@router.get("/v1/settings", response_model=SettingsAnswer, summary="The settings in force")
@reach(FOR_GATEWAYS)
async def read_settings(call: Call) -> Any:
    services = call.services
    found = settings_view(await services.measured("read_settings", settings_in_force(services.ledger)))
    own = services.own_settings
    return found | {"replica": None if own is None else own_settings_view(own)}


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
