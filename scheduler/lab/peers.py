"""Plain models of how other schedulers choose, to run beside this one's strategies on the same trace.

Each has one rule, and knows more than its original does: what every node bears is exact at every instant, no cache is
stale, and no two of its replicas choose at once. So what a model does worse than a strategy here, its original does at
least as badly. All of them place only where the request fits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from scheduler.domain.limits import MIB
from scheduler.domain.node import Heartbeat, Node, NodeAddress
from scheduler.domain.placement import Decision, Hint, HintKind, ScheduleRequest, Strategy
from scheduler.domain.reservation import CancelCause, Reservation, ReservationState
from scheduler.domain.sandbox import SandboxEvent, SandboxEventType
from scheduler.errors import NoNodes
from scheduler.lab.trace import NodeSpec


class Peer(StrEnum):
    """`best_of_three`: the least loaded of three nodes drawn at random (E2B); `power_of_two`: of two.
    `least_allocated`, `most_allocated`: the scores of these names in the Kubernetes scheduler. `best_fit`: bin packing
    as Nomad scores it."""

    BEST_OF_THREE = "best_of_three"
    POWER_OF_TWO = "power_of_two"
    LEAST_ALLOCATED = "least_allocated"
    MOST_ALLOCATED = "most_allocated"
    BEST_FIT = "best_fit"


@dataclass(slots=True)
class Machine:
    """A node and what it bears."""

    address: NodeAddress
    cpu_capacity: int
    memory_capacity_mb: int
    cpu_count: int = 0
    memory_mb: int = 0

    def shares(self, cpu_count: int, memory_mb: int) -> tuple[float, float]:
        """The shares of CPUs and of memory in use with this much more; 0 where the capacity is not known."""
        return (
            (self.cpu_count + cpu_count) / self.cpu_capacity if self.cpu_capacity else 0.0,
            (self.memory_mb + memory_mb) / self.memory_capacity_mb if self.memory_capacity_mb else 0.0,
        )


# Of the shares of CPUs and memory that a node has in use afterwards; the least is chosen.
Score = Callable[[tuple[float, float]], float]


def _pressure(shares: tuple[float, float]) -> float:
    return max(shares)


def _mean(shares: tuple[float, float]) -> float:
    return sum(shares) / 2


def _free_of_mean(shares: tuple[float, float]) -> float:
    return -_mean(shares)


def _nomad_free(shares: tuple[float, float]) -> float:
    """10 to the share that is free, summed: little where both dimensions are nearly full."""
    return sum(float(10 ** (1 - share)) for share in shares)


# How many nodes are drawn (0: all are looked at), and the score of each.
RULES: Mapping[Peer, tuple[int, Score]] = {
    Peer.BEST_OF_THREE: (3, _pressure),
    Peer.POWER_OF_TWO: (2, _pressure),
    Peer.LEAST_ALLOCATED: (0, _mean),
    Peer.MOST_ALLOCATED: (0, _free_of_mean),
    Peer.BEST_FIT: (0, _nomad_free),
}


class PeerScheduler:
    """The surface of a scheduler that chooses by one of these rules. It learns of ends by delete events, so its fleet
    must send them."""

    def __init__(self, peer: Peer, nodes: Sequence[NodeSpec], seed: int) -> None:
        self._drawn, self._score = RULES[peer]
        self._specs = {node.node_id: node for node in nodes}
        self._machines: dict[str, Machine] = {}
        self._random = random.Random(seed)
        self._numbers = count(1)

    async def discover(self, active: Sequence[NodeAddress]) -> None:
        specs = ((address, self._specs[address.node_id]) for address in active)
        self._machines = {address.node_id: Machine(address, spec.cpu_count, spec.memory_mb) for address, spec in specs}

    async def schedule(self, request: ScheduleRequest) -> Decision:
        asked = request.hint or Hint(HintKind.COLD_SANDBOX)
        cpu_count, memory_mb = asked.cpu_count, asked.memory_mb
        fitting = [each for each in self._machines.values() if max(each.shares(cpu_count, memory_mb)) <= 1]
        if not fitting:
            raise NoNodes(len(self._machines), {"insufficient_capacity": len(self._machines)})
        drawn = self._random.sample(fitting, min(self._drawn, len(fitting))) if self._drawn else fitting
        scores = [self._score(machine.shares(cpu_count, memory_mb)) for machine in drawn]
        best = [machine for machine, score in zip(drawn, scores, strict=True) if score == min(scores)]
        chosen = self._random.choice(best)
        chosen.cpu_count += cpu_count
        chosen.memory_mb += memory_mb
        node_id = chosen.address.node_id
        reservation = Reservation(
            f"peer-{next(self._numbers)}",
            node_id,
            ReservationState.PENDING,
            request.lifecycle,
            cpu_count,
            memory_mb * MIB,
            0,
            0,
        )
        return Decision(chosen.address, Strategy.LEAST_LOADED, reservation=reservation)

    async def drain(self, address: NodeAddress) -> None: ...

    async def heartbeat(self, heartbeat: Heartbeat) -> int:
        return 0

    async def report_events(self, node_id: str, service_instance_id: str, events: Sequence[SandboxEvent]) -> None:
        machine = self._machines[node_id]
        for event in events:
            if event.event_type is SandboxEventType.DELETE:
                machine.cpu_count -= event.requested_cpu
                machine.memory_mb -= event.requested_memory_bytes // MIB

    async def confirm(self, reservation_id: str, sandbox_id: str) -> None: ...

    async def cancel(self, reservation_id: str, reason: str, cause: CancelCause = CancelCause.CALLER) -> None: ...

    async def nodes(self) -> tuple[Node, ...]:
        return ()

    async def maintain(self) -> None: ...
