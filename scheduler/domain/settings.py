"""The settings that every replica must agree on. The ledger holds them, and scripts read them there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from enum import StrEnum

from scheduler.domain.placement import Strategy
from scheduler.domain.sandbox import Template


class Admission(StrEnum):
    """`strategy`: least_loaded admits by capacity, the others do not. `always`: every strategy admits by capacity."""

    STRATEGY = "strategy"
    ALWAYS = "always"


class Limits(StrEnum):
    """What `node_resource_limit` is compared with. `pending`: reported plus pending plus the request itself, for
    limits that count or sum. `reported`: reports alone, as AgentENV does. Routing without a hint always uses
    reports."""

    PENDING = "pending"
    REPORTED = "reported"


class GroupPlacement(StrEnum):
    """How the node of a new group is chosen."""

    ROUND_ROBIN = "round_robin"
    LEAST_LOADED = "least_loaded"


@dataclass(frozen=True, slots=True)
class NodeResourceLimit:
    """A node strictly above one of these is not chosen. None: not checked; 0 is a limit."""

    max_sandbox_count: int | None = None
    max_sandbox_starting_count: int | None = None
    max_cpu_used_percent: int | None = None
    max_cpu_allocated_percent: int | None = None
    max_memory_used_percent: int | None = None
    max_memory_allocated_percent: int | None = None
    max_sandbox_count_including_paused: int | None = None
    max_allocated_cpu_including_paused: int | None = None
    max_allocated_memory_bytes_including_paused: int | None = None

    @property
    def counts(self) -> bool:
        """Whether one of the set limits counts or sums, so that pending load can exceed it."""
        measured = (self.max_cpu_used_percent, self.max_memory_used_percent)
        return sum(value is not None for value in astuple(self)) > sum(value is not None for value in measured)


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The budgets of a placement group; 0 CPUs or MiB means no such budget."""

    max_sandbox_count: int = 0
    max_cpu_count: int = 0
    max_memory_mb: int = 0
    group_placement: GroupPlacement = GroupPlacement.ROUND_ROBIN
    max_open_groups: int = 10_000


@dataclass(frozen=True, slots=True)
class AvoidSettings:
    """When a node that refuses creations is avoided: after `refusals` (0: never), for `first_ms` and twice as long
    after each further refusal, up to `longest_ms`; at most `share_percent` of the nodes at once, rounded up."""

    refusals: int = 3
    first_ms: int = 1_000
    longest_ms: int = 30_000
    share_percent: int = 33


@dataclass(frozen=True, slots=True)
class AffinitySettings:
    """Under the strategies that rank: whether a node that holds the request's image or template is chosen before the
    least loaded one. `slack`: in whole per-mille of capacity, how much fuller it may be; None is off. `keys_per_node`:
    how many images and templates a node is taken to hold, the ones that it was given last."""

    slack: int | None = None
    keys_per_node: int = 8


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """`overcommit_*` is in whole per-mille of advertised capacity; None is `unlimited`: nothing is excluded in that
    dimension, and ranking uses advertised capacity. `fill_to` is in whole per-mille of effective capacity; 0 is off.

    The ledger has these fields in this order, under the names that `scheduler.ledger.settings_fields` gives them. Those
    that placements read come first: Redis scans a small hash from its beginning."""

    strategy: Strategy = Strategy.ROUND_ROBIN
    admission: Admission = Admission.STRATEGY
    locality_enabled: bool = False
    report_ttl_ms: int = 30_000
    placement_reservation_ttl_ms: int = 600_000
    overcommit_cpu: int | None = 1000
    overcommit_memory: int | None = 1000
    fill_to: int = 0
    affinity: AffinitySettings = field(default_factory=AffinitySettings)
    limits: Limits = Limits.PENDING
    binding_ttl_ms: int = 180_000
    binding_grace_ms: int = 15_000
    groups: GroupSettings = field(default_factory=GroupSettings)
    cold_default_cpu_count: int = 0
    cold_default_memory_mb: int = 0
    avoid: AvoidSettings = field(default_factory=AvoidSettings)
    templates_learn: bool = False
    decisions_keep: int = 1_000
    artifact_store_capacity: int = 1_000_000
    artifact_lookup_node_limit: int = 0
    self_registration: bool = False
    resources: tuple[str, ...] = ()
    scarce: tuple[str, ...] = ()
    node_resource_limit: NodeResourceLimit = field(default_factory=NodeResourceLimit)
    revision: int = 0

    # Declared templates are part of the configuration, but stored under keys of their own and not compared
    # between replicas.
    templates: Mapping[str, Template] = field(default_factory=dict)
