"""`agentenv-scheduler lifecycle`: hold what the ledger believes against what a fleet really runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from scheduler.cancellation import run_command
from scheduler.config import kinds
from scheduler.domain.wording import counted
from scheduler.lab.cli.options import (
    AsJson,
    RedisAddress,
    Seed,
    parts,
    progress_bars,
    quiet_logs,
    read_option,
    read_spread,
    show,
)


def lifecycle(
    story: Annotated[
        str, typer.Option(help="full: a backlog always waits. burst: small creates at once, then large ones.")
    ] = "full",
    ending: Annotated[
        str, typer.Option(metavar="A,B", help="How reservations end: explicit, named, both, events, counters.")
    ] = "explicit,named,both,events,counters",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of 32 CPUs and 128 GiB.")] = 50,
    duration: Annotated[
        str, typer.Option(metavar="DURATION", help="Its first quarter, at most 1m, fills the fleet and is not judged.")
    ] = "4m",
    boot_time: Annotated[str, typer.Option(metavar="LEAST-MOST", help="From a VM's start until it runs.")] = "2s-20s",
    report_interval: Annotated[
        str, typer.Option(metavar="LEAST-MOST", help="Between two reports; every node has its own.")
    ] = "5s-15s",
    sandbox_life: Annotated[str, typer.Option(metavar="DURATION", help="How long one runs, on average.")] = "1m",
    boot_fails: Annotated[float, typer.Option(min=0, max=1, help="Share of boots that fail.")] = 0.05,
    pull_fails: Annotated[
        float, typer.Option(min=0, max=1, help="Share of image pulls that fail, which no counter shows.")
    ] = 0.0,
    forks: Annotated[float, typer.Option(min=0, max=1, help="Share of sandboxes that fork, once.")] = 0.0,
    late_reports: Annotated[
        float, typer.Option(min=0, max=1, help="Share of reports that are under way for 2 to 15 seconds.")
    ] = 0.0,
    report_sequence: Annotated[
        bool, typer.Option("--report-sequence/--no-report-sequence", help="AgentENV's own nodes send none.")
    ] = True,
    lost_events: Annotated[float, typer.Option(min=0, max=1, help="Share of events that never arrive.")] = 0.0,
    restarts: Annotated[int, typer.Option(min=0, help="So many nodes restart halfway.")] = 0,
    reservation_ttl: Annotated[str, typer.Option(metavar="DURATION", help="placement_reservation_ttl")] = "10m",
    replicas: Annotated[
        int, typer.Option(min=0, help="So many replica processes over HTTP, in real time; 0: virtual time.")
    ] = 0,
    time_scale: Annotated[
        float, typer.Option(min=0.1, max=100, help="With --replicas: all happens this many times as fast.")
    ] = 1.0,
    redis_addr: RedisAddress = None,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    """Hold what the ledger believes against what a simulated fleet really runs.

    The nodes judge: how much is held though it is free, is any capacity given twice, what is refused
    although a node had it free? In the burst nothing fails, forks or ends, so that its numbers are exact."""
    from scheduler.lab.compare import Replicas, compare_endings, endings_on_replicas
    from scheduler.lab.gateway import Ending
    from scheduler.lab.lifecycle import BURST, FATES, FLEET, Story, Workload
    from scheduler.lab.scratch import best_server, real_server
    from scheduler.lab.tables import lifecycle_table

    told = read_option("--story", kinds.choice(Story), story)
    endings = [read_option("--ending", kinds.choice(Ending), name) for name in parts(ending)]
    duration_ms = read_option("--duration", kinds.duration(), duration)
    fates = replace(
        FATES,
        pull_fails=pull_fails,
        boot_fails=boot_fails,
        forks=forks,
        mean_life_ms=read_option("--sandbox-life", kinds.duration(), sandbox_life),
    )
    workload = Workload(duration_ms=duration_ms, warmup_ms=min(60_000, duration_ms // 4), fates=fates)
    workload = replace(
        BURST if told is Story.BURST else workload,
        node_count=nodes,
        restarts=min(restarts, nodes),
        reservation_ttl_ms=read_option("--reservation-ttl", kinds.duration(), reservation_ttl),
        fleet=replace(
            FLEET,
            report_interval=read_spread("--report-interval", report_interval),
            boot=read_spread("--boot-time", boot_time),
            late_reports=late_reports,
            sends_sequence=report_sequence,
            lost_events=lost_events,
        ),
        seed=seed,
    )
    quiet_logs()
    title = f"{told.value}: {counted(nodes, 'node')}, a report every {report_interval}, boots of {boot_time}"
    seconds = round(workload.duration_ms / 1_000 / (time_scale if replicas else 1))
    with (
        real_server(redis_addr) if replicas else best_server(redis_addr) as address,
        progress_bars(seconds, shown=not as_json) as report,
    ):
        if replicas:
            processes = Replicas(replicas, address, time_scale)
            results = run_command(endings_on_replicas(workload, endings, processes, report))
        else:
            results = run_command(compare_endings(workload, endings, address, report))
    show(lifecycle_table(results, title), {"lifecycles": [result.as_dict() for result in results]}, as_json=as_json)
