"""A node as the scheduler sees one: what it runs, and what it says about it.

The rules are those of AgentENV's node. A sandbox appears in the roster, in the allocation and in
the starting count at the moment its VM starts; `create_successes` rises only when it runs. So a
report can show growth before success. Whatever happens before the VM starts (an image that cannot
be pulled, say) is visible in no field at all. A fork's children count as successes although nobody
scheduled them. Counters belong to the process: a restart begins at 0 with a new instance id.

A node is also the lab's truth: it knows what no report tells, the creates that are `coming` and what
the scheduler has been told so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.domain.limits import MIB
from scheduler.domain.node import DiskMetric, Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.resources import DISK, ResourceLoad
from scheduler.lab.trace import NodeSpec


@dataclass(frozen=True, slots=True, order=True)
class Size:
    cpu_count: int = 0
    memory_mb: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.cpu_count + other.cpu_count, self.memory_mb + other.memory_mb)

    def within(self, capacity: Size) -> bool:
        return self.cpu_count <= capacity.cpu_count and self.memory_mb <= capacity.memory_mb


class Phase(StrEnum):
    BOOTING = "booting"
    RUNNING = "running"
    PAUSED = "paused"
    RESUMING = "resuming"


@dataclass(slots=True)
class SimulatedSandbox:
    """`forked`: a child of another sandbox, for which nobody asked the scheduler."""

    sandbox_id: str
    cpu_count: int
    memory_mb: int
    phase: Phase = Phase.BOOTING
    forked: bool = False
    resources: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> Size:
        return Size(self.cpu_count, self.memory_mb)

    @property
    def starting(self) -> bool:
        return self.phase in (Phase.BOOTING, Phase.RESUMING)


class SimulatedNode:
    """`changed` is true from any visible change until the next heartbeat is taken. `coming`: creates under way whose VM
    has not started. `reported_ids` and `reported_allocation`: the newest heartbeat that has arrived. `acknowledged`:
    the generation of the last answer, where its reports say that; None: they do not."""

    def __init__(self, spec: NodeSpec, *, reports_roster: bool = True, sends_sequence: bool = True) -> None:
        self.spec = spec
        self.reports_roster = reports_roster
        self.sends_sequence = sends_sequence
        self.sandboxes: dict[str, SimulatedSandbox] = {}
        self.coming: dict[str, Size] = {}
        self.changed = True
        self.reported_ids: frozenset[str] = frozenset()
        self.reported_allocation = Size()
        self.acknowledged: int | None = None
        self._newest_arrived = (-1, 0)
        self._restarts = 0
        self._reset_counters()

    @property
    def node_id(self) -> str:
        return self.spec.node_id

    @property
    def address(self) -> NodeAddress:
        return NodeAddress(self.node_id, f"http://{self.node_id}.fleet.invalid:8000", dict(self.spec.labels) or None)

    @property
    def service_instance_id(self) -> str:
        return f"{self.node_id}-run-{self._restarts}"

    @property
    def allocated(self) -> Size:
        """Everything here, paused sandboxes included."""
        return total(each.size for each in self.sandboxes.values())

    @property
    def resources(self) -> dict[str, ResourceLoad]:
        """What the node has beside CPUs and memory, and what its sandboxes use of it, paused ones too."""
        if not self.spec.resources:
            return {}
        used = Counter[str]()
        for sandbox in self.sandboxes.values():
            used.update(sandbox.resources)
        return {name: ResourceLoad(total, used[name]) for name, total in self.spec.resources.items()}

    def boot(self, sandbox_id: str, cpu_count: int, memory_mb: int) -> None:
        """Start a VM. The node does not refuse: whether it fits was the scheduler's question."""
        self.coming.pop(sandbox_id, None)
        self.sandboxes[sandbox_id] = SimulatedSandbox(sandbox_id, cpu_count, memory_mb)
        self.changed = True

    def become_ready(self, sandbox_id: str) -> bool:
        """A booting or resuming sandbox runs now; False when it is gone (deleted, or lost in a restart)."""
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.starting:
            return False
        if sandbox.phase is Phase.BOOTING:
            self._create_successes += 1
        sandbox.phase = Phase.RUNNING
        self.changed = True
        return True

    def fail_boot(self, sandbox_id: str) -> bool:
        """The VM came up but its guest never did: gone again, and counted as a failed create."""
        if self.sandboxes.pop(sandbox_id, None) is None:
            return False
        self._create_fails += 1
        self.changed = True
        return True

    def fork(self, parent_id: str, child_ids: tuple[str, ...]) -> tuple[SimulatedSandbox, ...]:
        """Children of the parent's size, running at once and counted as successes."""
        parent = self.sandboxes.get(parent_id)
        if parent is None or parent.phase is not Phase.RUNNING:
            return ()
        children = tuple(
            SimulatedSandbox(child_id, parent.cpu_count, parent.memory_mb, Phase.RUNNING, forked=True)
            for child_id in child_ids
        )
        self.sandboxes.update({child.sandbox_id: child for child in children})
        self._create_successes += len(children)
        self.changed = True
        return children

    def pause(self, sandbox_id: str) -> bool:
        return self._move(sandbox_id, Phase.RUNNING, Phase.PAUSED)

    def resume(self, sandbox_id: str) -> bool:
        """Resuming passes through starting again, and no counter tells of it."""
        return self._move(sandbox_id, Phase.PAUSED, Phase.RESUMING)

    def delete(self, sandbox_id: str) -> SimulatedSandbox | None:
        gone = self.sandboxes.pop(sandbox_id, None)
        self.changed = self.changed or gone is not None
        return gone

    def restart(self) -> None:
        """The process starts anew: its sandboxes and creates are lost, its counters begin at 0."""
        self.sandboxes.clear()
        self.coming.clear()
        self._restarts += 1
        self.acknowledged = None
        self._reset_counters()
        self.changed = True

    def snapshot(self, now_ms: int) -> NodeSnapshot:
        paused = [each for each in self.sandboxes.values() if each.phase is Phase.PAUSED]
        active = [each for each in self.sandboxes.values() if each.phase is not Phase.PAUSED]
        starting_count = sum(each.starting for each in active)
        disk = self.resources.get(DISK)
        return NodeSnapshot(
            status=NodeStatus.READY,
            cpu_count=self.spec.cpu_count,
            memory_total_bytes=self.spec.memory_mb * MIB,
            allocated_cpu=sum(each.cpu_count for each in active),
            allocated_memory_bytes=sum(each.memory_mb for each in active) * MIB,
            paused_allocated_cpu=sum(each.cpu_count for each in paused),
            paused_allocated_memory_bytes=sum(each.memory_mb for each in paused) * MIB,
            sandbox_count=len(active),
            sandbox_starting_count=starting_count,
            paused_sandbox_count=len(paused),
            create_successes=self._create_successes,
            create_fails=self._create_fails,
            reported_at_unix_ms=now_ms,
            disks=() if disk is None else (DiskMetric("/", DISK, "", disk.allocated, disk.total),),
        )

    def heartbeat(self, now_ms: int) -> Heartbeat:
        self.changed = False
        self._sequence += 1
        return Heartbeat(
            node_id=self.node_id,
            service_instance_id=self.service_instance_id,
            cluster_id="lab",
            version="simulated",
            sequence=self._sequence if self.sends_sequence else None,
            snapshot=self.snapshot(now_ms),
            sandbox_ids=tuple(self.sandboxes) if self.reports_roster else None,
            acknowledged_generation=self.acknowledged,
            resources={name: load for name, load in self.resources.items() if name != DISK},
        )

    def arrived(self, heartbeat: Heartbeat) -> None:
        """The scheduler has this heartbeat now; one older than the newest it has tells nothing. Without sequences
        nobody can tell which of one process is older, so the last to arrive counts."""
        run = int(heartbeat.service_instance_id.rpartition("-")[2])
        newest_run, newest_sequence = self._newest_arrived
        sequence = newest_sequence + 1 if heartbeat.sequence is None else heartbeat.sequence
        snapshot = heartbeat.snapshot
        if (run, sequence) <= (newest_run, newest_sequence) or snapshot is None:
            return
        self._newest_arrived = (run, sequence)
        self.reported_ids = frozenset(heartbeat.sandbox_ids or ())
        self.reported_allocation = Size(
            snapshot.allocated_cpu + snapshot.paused_allocated_cpu,
            (snapshot.allocated_memory_bytes + snapshot.paused_allocated_memory_bytes) // MIB,
        )

    def _move(self, sandbox_id: str, from_phase: Phase, to_phase: Phase) -> bool:
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None or sandbox.phase is not from_phase:
            return False
        sandbox.phase = to_phase
        self.changed = True
        return True

    def _reset_counters(self) -> None:
        self._create_successes = 0
        self._create_fails = 0
        self._sequence = 0


def total(sizes: Iterable[Size]) -> Size:
    return sum(sizes, Size())
