"""A burst through whole replicas: as many sandboxes as the fleet can take, in batches, by several callers at once.

Demand is exactly the fleet's capacity, so a creation that is refused was refused while it fitted somewhere, and one
that is placed on a full node is one too many there. Afterwards one more is asked for, which must be refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scheduler.domain.node import Heartbeat, NodeAddress, NodeSnapshot, NodeStatus
from scheduler.domain.placement import Hint, HintKind, ScheduleRequest
from scheduler.errors import ConfigurationError, NoNodes, SchedulerError
from scheduler.lab.bench_fleet import endpoint_of, node_id_of
from scheduler.lab.http_surface import OverHttp
from scheduler.lab.measures import weighted_quantile
from scheduler.lab.plain_http import PlainHttp
from scheduler.lab.replica_processes import replica_processes

CPUS, MEMORY_MB = 2, 4_096
MIB = 1 << 20
REPORTS_AT_ONCE = 64
# Nodes report once; a burst must not outlive them, whatever the machine.
KEYS = {
    "strategy": "least_loaded", "report_ttl": "1h", "placement_reservation_ttl": "1h",
    "settings.revision": "1",
}  # fmt: skip

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class BurstOptions:
    nodes: int = 10_000
    creations: int = 100_000
    batch: int = 100
    replicas: int = 2
    callers: int = 8


@dataclass(frozen=True, slots=True)
class BurstResult:
    """`refused`: creations that were refused while something was free. `over`: nodes that were given more than they
    have. `one_more_refused`: whether the full fleet refused the next one. Times are those of the callers."""

    creations: int
    confirmed: int
    refused: int
    over: int
    one_more_refused: bool
    retries: int
    seconds: float
    batch_p50_ms: float
    batch_p99_ms: float
    confirm_p50_ms: float
    confirm_p99_ms: float

    @property
    def sound(self) -> bool:
        return self.refused == self.over == 0 and self.confirmed == self.creations and self.one_more_refused

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sound": self.sound}


async def run_burst(
    redis_addr: str, options: BurstOptions | None = None, progress: Progress = lambda stage: None
) -> BurstResult:
    """Raises ConfigurationError when the creations cannot fill the nodes evenly."""
    options = options or BurstOptions()
    if options.creations % options.nodes:
        raise ConfigurationError("the creations must be a multiple of the nodes, so that they fill the fleet")
    progress(f"starting {options.replicas} replicas")
    async with replica_processes(options.replicas, redis_addr, KEYS) as surface:
        burst = Burst(surface, options)
        progress(f"{options.nodes:,} nodes report")
        await burst.fill()
        progress(f"{options.creations:,} creations")
        return await burst.run()


class Burst:
    def __init__(self, surface: OverHttp, options: BurstOptions) -> None:
        self._surface = surface
        self._options = options
        self._given: Counter[str] = Counter()
        self._batch_ms: list[float] = []
        self._confirm_ms: list[float] = []
        self._refused = self._retries = self._next = 0

    async def fill(self) -> None:
        """List the nodes and let each report once, empty."""
        cpus = self._options.creations // self._options.nodes * CPUS
        memory_bytes = self._options.creations // self._options.nodes * MEMORY_MB * MIB
        snapshot = NodeSnapshot(NodeStatus.READY, cpu_count=cpus, memory_total_bytes=memory_bytes)
        numbers = range(self._options.nodes)
        await self._surface.discover([NodeAddress(node_id_of(number), endpoint_of(number)) for number in numbers])

        async def report(first: int) -> None:
            for number in range(first, self._options.nodes, REPORTS_AT_ONCE):
                node_id = node_id_of(number)
                await self._surface.heartbeat(Heartbeat(node_id, f"{node_id}-1", snapshot=snapshot))

        await asyncio.gather(*map(report, range(REPORTS_AT_ONCE)))

    async def run(self) -> BurstResult:
        began = time.perf_counter()
        await asyncio.gather(*map(self._call, range(self._options.callers)))
        seconds = time.perf_counter() - began
        most = self._options.creations // self._options.nodes
        return BurstResult(
            creations=self._options.creations,
            confirmed=len(self._confirm_ms),
            refused=self._refused,
            over=sum(count > most for count in self._given.values()),
            one_more_refused=await self._is_full(),
            retries=self._retries,
            seconds=seconds,
            batch_p50_ms=_quantile(self._batch_ms, 0.5),
            batch_p99_ms=_quantile(self._batch_ms, 0.99),
            confirm_p50_ms=_quantile(self._confirm_ms, 0.5),
            confirm_p99_ms=_quantile(self._confirm_ms, 0.99),
        )

    async def _call(self, caller: int) -> None:
        """One caller, by one replica: a batch, then its confirms, until nothing is left to ask for."""
        addresses = self._surface.addresses
        async with PlainHttp(addresses[caller % len(addresses)]) as http:
            while self._next < self._options.creations:
                number, count = self._next, min(self._options.batch, self._options.creations - self._next)
                self._next += count
                placed = await self._place(http, number, count)
                self._refused += count - len(placed)
                for reservation_id in placed:
                    await self._confirm(http, reservation_id)

    async def _place(self, http: PlainHttp, number: int, count: int) -> Sequence[str]:
        """Under one key however often it is asked, so what is asked twice is placed once."""
        wanted = {"count": count, "hint": {"kind": "cold_sandbox", "cpu_count": CPUS, "memory_mb": MEMORY_MB}}
        began = time.perf_counter()
        answer = await self._ask(http, "/v1/schedule/batch", wanted, f"Idempotency-Key: burst-{number}\r\n")
        self._batch_ms.append(1_000 * (time.perf_counter() - began))
        self._given.update(placed["node"]["node_id"] for placed in answer["placed"])
        return [placed["reservation"]["reservation_id"] for placed in answer["placed"]]

    async def _confirm(self, http: PlainHttp, reservation_id: str) -> None:
        began = time.perf_counter()
        await self._ask(http, f"/v1/reservations/{reservation_id}/confirm", {"sandbox_id": f"sandbox-{reservation_id}"})
        self._confirm_ms.append(1_000 * (time.perf_counter() - began))

    async def _ask(self, http: PlainHttp, path: str, value: Any, headers: str = "") -> Any:
        """Asked again as long as the ledger is busy; every other answer than a success is a fault of the run."""
        while True:
            status, answer = await http.post(path, value, headers)
            if status == 200:
                return answer
            if not (status == 503 and answer["code"] in {"overloaded", "store_unavailable"}):
                raise SchedulerError(f"{path}: HTTP {status}: {answer}", code="unexpected")
            self._retries += 1

    async def _is_full(self) -> bool:
        try:
            await self._surface.schedule(ScheduleRequest(Hint(HintKind.COLD_SANDBOX, CPUS, MEMORY_MB)))
        except NoNodes:
            return True
        return False


def _quantile(values: Sequence[float], share: float) -> float:
    return weighted_quantile([(value, 1) for value in values], share)
