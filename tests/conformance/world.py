"""One fresh scheduler per case: ledger, services, clock, and a switch for its store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from scheduler.config.kinds import choice
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import (
    Admission,
    AffinitySettings,
    GroupPlacement,
    GroupSettings,
    LedgerSettings,
    Limits,
    NodeResourceLimit,
)
from tests.support.backends import Backend, put_settings
from tests.support.clock import VirtualClock
from tests.support.patience import PATIENCE
from tests.support.relay import Relay

if TYPE_CHECKING:
    from scheduler.ledger.ledger import Ledger
    from scheduler.service import Services

# How long a call waits for a store that a case took away.
IMPATIENT_MS = 300

# Cases of these areas need an option that is off unless an operator turns it on.
AREA_SETTINGS: Mapping[str, Mapping[str, Any]] = {"locality_extension": {"locality_enabled": True}}

# Cases of AgentENV's behaviour that is ours only under a setting.
CASE_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "grouped_round_robin/group_closes_when_its_node_is_filtered": {"limits": Limits.REPORTED},
}

# Durations and plain values that a case's `config` states under the ledger's own names.
_PLAIN = (
    "report_ttl_ms",
    "binding_ttl_ms",
    "binding_grace_ms",
    "placement_reservation_ttl_ms",
    "artifact_store_capacity",
    "artifact_lookup_node_limit",
    "cold_default_cpu_count",
    "cold_default_memory_mb",
    "templates_learn",
    "self_registration",
)
_CONFIG_KEYS = {
    *_PLAIN,
    "strategy",
    "admission",
    "limits",
    "fill_to",
    "affinity",
    "overcommit",
    "grouped_round_robin",
    "node_resource_limit",
    "resources",
    "scarce",
}


def case_settings(area: str, name: str, config: Mapping[str, Any]) -> LedgerSettings:
    """The ledger's settings for a case. Upstream knows no grace, so it is 0 unless stated."""
    unknown = set(config) - _CONFIG_KEYS
    assert not unknown, f"unknown config keys: {sorted(unknown)}"
    values: dict[str, Any] = {"binding_ttl_ms": 30_000, "binding_grace_ms": 0, **AREA_SETTINGS.get(area, {})}
    values |= CASE_SETTINGS.get(f"{area}/{name}", {})
    values |= {key: config[key] for key in _PLAIN if key in config}
    values["strategy"] = parse_strategy(config.get("strategy", "round_robin"))
    values["admission"] = Admission(config.get("admission", "strategy"))
    values["resources"] = tuple(config.get("resources", ()))
    values["scarce"] = tuple(config.get("scarce", ()))
    if "limits" in config:
        values["limits"] = Limits(config["limits"])
    for dimension, factor in config.get("overcommit", {}).items():
        values[f"overcommit_{dimension}"] = None if factor == "unlimited" else round(factor * 1000)
    values["fill_to"] = round(config.get("fill_to", 0) * 1000)
    groups = dict(config.get("grouped_round_robin", {}))
    if "group_placement" in groups:
        groups["group_placement"] = GroupPlacement(groups["group_placement"])
    values["groups"] = GroupSettings(**groups)
    affinity = config.get("affinity", {})
    slack = affinity.get("slack", "off")
    values["affinity"] = AffinitySettings(
        None if slack == "off" else round(slack * 1000), affinity.get("keys_per_node", AffinitySettings().keys_per_node)
    )
    values["node_resource_limit"] = NodeResourceLimit(**config.get("node_resource_limit", {}))
    return LedgerSettings(**values)


def parse_strategy(text: str) -> Strategy:
    """As the configuration reads it; ValueError for a name nobody knows."""
    return choice(Strategy).read(text)


class StoreSwitch:
    """Takes the store away from one ledger and gives it back, without touching the server.

    Embedded: fakeredis' own switch. Real: a relay that closes what comes.
    """

    def __init__(self, backend: Backend) -> None:
        self.ledger: Ledger | None = None
        self._backend = backend
        self._relay = Relay(backend.server.port) if backend.server else None

    async def start(self) -> str | None:
        """The address the ledger must use, None for the embedded one."""
        return (await self._relay.start()).address if self._relay else None

    def down(self) -> None:
        self._be_patient(IMPATIENT_MS)
        if self._relay:
            self._relay.down()
        elif self._backend.fake_server:
            self._backend.fake_server.connected = False

    def up(self) -> None:
        self._be_patient(PATIENCE["operation_timeout_ms"])
        if self._relay:
            self._relay.up()
        elif self._backend.fake_server:
            self._backend.fake_server.connected = True

    def _be_patient(self, operation_timeout_ms: int) -> None:
        """Only while the store is away: with it, a call on a busy machine may take its time."""
        if self.ledger:
            client = self.ledger.client
            client.options = replace(client.options, operation_timeout_ms=operation_timeout_ms)

    async def stop(self) -> None:
        self.up()
        if self._relay:
            await self._relay.stop()


@dataclass
class World:
    """What a driver may hold: the services it wraps, and the ledger and clock beneath them."""

    backend: Backend
    clock: VirtualClock
    ledger: Ledger
    services: Services
    switch: StoreSwitch | None

    @classmethod
    async def create(cls, backend: Backend, settings: LedgerSettings, *, with_switch: bool) -> World:
        from scheduler.service import build_services

        clock = VirtualClock()
        switch = StoreSwitch(backend) if with_switch else None
        redis_addr = await switch.start() if switch else None
        ledger = await backend.open(clock=clock, redis_addr=redis_addr)
        if switch:
            switch.ledger = ledger
        await put_settings(ledger, settings)
        return cls(backend, clock, ledger, build_services(ledger), switch)

    async def close(self) -> None:
        if self.switch:
            await self.switch.stop()
        await self.ledger.close()
