"""One trace under several strategies, or one workload under several endings; each on an empty ledger."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from scheduler.domain.duration import format_duration
from scheduler.domain.placement import Strategy
from scheduler.domain.settings import GroupPlacement, LedgerSettings
from scheduler.lab.clock import Agenda, ConcurrentAgenda, VirtualClock
from scheduler.lab.gateway import Ending
from scheduler.lab.lifecycle import LifecycleResult, LifecycleRun, Workload
from scheduler.lab.peers import Peer, PeerScheduler
from scheduler.lab.replay import Contender, Replay, ReplayOptions, ReplayResult
from scheduler.lab.replica_processes import replica_processes
from scheduler.lab.scratch import REPORT_TTL_MS, scratch_ledger
from scheduler.lab.surface import InProcess
from scheduler.lab.trace import Trace
from scheduler.service import build_services

# Told the run's name and how many of its requests are done.
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of one comparison share; strategy and group placement are each run's own."""

    redis_addr: str
    settings: LedgerSettings = field(default_factory=LedgerSettings)
    options: ReplayOptions = field(default_factory=ReplayOptions)
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replica processes for a run in real time, in which everything happens `time_scale` times as fast."""

    count: int
    redis_addr: str
    time_scale: float = 1.0


def contenders(
    strategies: Sequence[Strategy], group_placements: Sequence[GroupPlacement], peers: Sequence[Peer] = ()
) -> list[Contender]:
    """Every strategy once, the grouped one once for each way to open a group; then the models of other schedulers."""
    listed: list[Contender] = []
    for strategy in strategies:
        listed += (
            [Contender(strategy, way) for way in group_placements] if strategy.forms_groups else [Contender(strategy)]
        )
    return listed + [Contender(peer) for peer in peers]


async def compare_strategies(
    trace: Trace, rivals: Sequence[Contender], setup: Setup, progress: Progress = lambda name, done: None
) -> list[ReplayResult]:
    """Replay the trace under each strategy, in the order given."""
    results = []
    for contender in rivals:
        async with _contest(trace, contender, setup) as replay:
            results.append(await replay.run(contender, partial(progress, contender.label)))
    return results


@asynccontextmanager
async def _contest(trace: Trace, contender: Contender, setup: Setup) -> AsyncIterator[Replay]:
    """The replay that a strategy decides on a ledger of its own, or the model of another scheduler in memory."""
    agenda, strategy = Agenda(VirtualClock()), contender.strategy
    if isinstance(strategy, Peer):
        told_of_ends = replace(setup.options, fleet=replace(setup.options.fleet, sends_events=True))
        yield Replay(trace, PeerScheduler(strategy, trace.nodes, setup.seed), agenda, told_of_ends)
        return
    groups = replace(setup.settings.groups, group_placement=contender.group_placement or GroupPlacement.ROUND_ROBIN)
    settings = replace(setup.settings, strategy=strategy, groups=groups, report_ttl_ms=REPORT_TTL_MS)
    async with scratch_ledger(setup.redis_addr, settings, agenda.clock) as ledger:
        ledger.runner.entropy = seeded_entropy(setup.seed)
        yield Replay(trace, InProcess(build_services(ledger)), agenda, setup.options)


async def compare_endings(
    workload: Workload, endings: Sequence[Ending], redis_addr: str, progress: Progress = lambda name, done: None
) -> list[LifecycleResult]:
    results = []
    for ending in endings:
        agenda = Agenda(VirtualClock())
        settings = LedgerSettings(
            strategy=Strategy.LEAST_LOADED, placement_reservation_ttl_ms=workload.reservation_ttl_ms
        )
        async with scratch_ledger(redis_addr, settings, agenda.clock) as ledger:
            ledger.runner.entropy = seeded_entropy(workload.seed)
            run = LifecycleRun(ending, workload, InProcess(build_services(ledger)), agenda)
            results.append(await run.run(partial(progress, ending.value)))
    return results


async def endings_on_replicas(
    workload: Workload,
    endings: Sequence[Ending],
    replicas: Replicas,
    progress: Progress = lambda name, done: None,
) -> list[LifecycleResult]:
    """Replay it in real time, on replica processes that share a Redis server."""
    shortened = workload.shortened(replicas.time_scale)
    keys = {
        "strategy": Strategy.LEAST_LOADED.value,
        "placement_reservation_ttl": format_duration(shortened.reservation_ttl_ms),
        "http.request_timeout": "30s",
    }
    results = []
    for ending in endings:
        async with (
            replica_processes(replicas.count, replicas.redis_addr, keys) as surface,
            ConcurrentAgenda() as agenda,
        ):
            run = LifecycleRun(ending, shortened, surface, agenda)
            results.append(await run.run(partial(progress, ending.value)))
    return results


def seeded_entropy(seed: int) -> Callable[[], int]:
    """Where a replica would draw at random: from one seed it is the same run every time."""
    return partial(random.Random(seed).getrandbits, 32)
