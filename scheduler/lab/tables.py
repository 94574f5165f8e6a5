"""The lab's results as tables for people. Programs get the same figures by `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from scheduler.lab.bench import FleetCost, PlacementCost
from scheduler.lab.bench_bounds import StepCost
from scheduler.lab.burst import BurstResult
from scheduler.lab.lifecycle import LifecycleResult
from scheduler.lab.replay import ReplayResult


def replay_table(results: Sequence[ReplayResult], title: str) -> Table:
    """Without the bounds where nobody asked for them."""
    bounded = any(result.bounds for result in results)
    columns = ["placed", "refused", "peak pressure", "at least", "p99 pressure", "imbalance", "warm hits", "nodes used"]
    columns.append("at least")
    if not bounded:
        columns = [column for column in columns if column != "at least"]
    table = _table(title, "strategy", *columns)
    for result in results:
        bounds = result.bounds
        table.add_row(
            result.contender.label,
            f"{result.placed:,}",
            refusals(result.refused),
            f"{result.peak_pressure:.4f}",
            *([f"{bounds.peak_pressure:.4f}" if bounds else "–"] if bounded else []),
            f"{result.p99_pressure:.4f}",
            f"{result.imbalance:.4f}",
            "–" if result.hit_rate is None else f"{result.hit_rate:.1%}",
            f"{result.nodes_used_mean:.1f}",
            *([f"{bounds.nodes_mean:.1f}" if bounds and bounds.nodes_mean is not None else "–"] if bounded else []),
        )
    return table


def lifecycle_table(results: Sequence[LifecycleResult], title: str) -> Table:
    table = _table(
        title,
        "reservations end by",
        "placed of placeable",
        "used (least)",
        "held though free",
        "given twice",
        "over by forks",
        "worst pressure",
        "refused",
        "could fit",
        "by holding",
    )
    for result in results:
        figures = result.figures
        table.add_row(
            result.ending.value,
            f"{result.placed:,}" if result.placeable is None else f"{result.placed:,} of {result.placeable:,}",
            f"{figures.allocated:.1%} ({figures.least_allocated:.1%})",
            f"{figures.held_though_free:.2%}",
            f"{figures.given_twice:,}",
            f"{figures.over_by_forks:,}",
            f"{figures.worst_pressure:.2f}",
            f"{figures.refused:,}",
            f"{figures.refused_with_room:,}",
            f"{figures.refused_by_holding:,}",
        )
    return table


def step_cost_table(costs: Sequence[StepCost]) -> Table:
    """The dearest first; of a busy machine the mean is to be believed, the worst call may have been disturbed."""
    title = "Single scripts, CPU of the server's main thread (ms)"
    table = _table(title, "script", "when", "calls", "mean", "worst", "commands at most")
    for cost in costs:
        figures = (f"{cost.calls:,}", f"{cost.mean_ms:.2f}", f"{cost.worst_ms:.2f}", f"{cost.commands:,}")
        table.add_row(cost.script, cost.situation, *figures)
    return table


def burst_table(result: BurstResult) -> Table:
    table = _table("A fleet filled at once", "", "")
    rate = result.creations / result.seconds
    rows = {
        "creations, each confirmed": f"{result.confirmed:,} of {result.creations:,}",
        "refused while something was free": f"{result.refused:,}",
        "nodes given more than they have": f"{result.over:,}",
        "one more, on the full fleet": "refused" if result.one_more_refused else "placed",
        "calls repeated because the ledger was busy": f"{result.retries:,}",
        "seconds": f"{result.seconds:.1f} ({rate:,.0f} sandboxes/s)",
        "one batch, p50 and p99": f"{result.batch_p50_ms:.1f} ms, {result.batch_p99_ms:.1f} ms",
        "one confirm, p50 and p99": f"{result.confirm_p50_ms:.1f} ms, {result.confirm_p99_ms:.1f} ms",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def placement_cost_table(costs: Sequence[PlacementCost]) -> Table:
    table = _table(
        "One placement inside Redis, reservation written (µs, median of rounds)",
        "nodes",
        "shapes",
        "pipelined",
        "no-op",
        "ratio",
        "CPU",
        "no-op CPU",
        "one by one",
        "round trip",
        "bytes per node",
    )
    for cost in costs:
        table.add_row(
            f"{cost.nodes:,}",
            str(cost.shapes),
            f"{cost.script_us:.1f}",
            f"{cost.noop_us:.2f}",
            f"{cost.ratio:.1f}",
            f"{cost.cpu_us:.1f}",
            f"{cost.noop_cpu_us:.1f}",
            f"{cost.cold_us:.1f}",
            f"{cost.round_trip_us:.0f}",
            f"{cost.bytes_per_node:,.0f}",
        )
    return table


def fleet_cost_table(costs: Sequence[FleetCost]) -> Table:
    """Every size has been measured with the same numbers of shapes."""
    churned = list(costs[0].churn_us) if costs else []
    table = _table(
        "What else the fleet costs inside Redis (µs)",
        "nodes",
        "loaded in",
        "first placement",
        *(f"{shapes} shapes, 1/5 changed" for shapes in churned),
        "placed, all equal",
        "refused, all full",
        "report changed",
        "report unchanged",
        "report no-op",
    )
    for cost in costs:
        table.add_row(
            f"{cost.nodes:,}",
            f"{cost.load_seconds:.1f} s",
            f"{cost.first_use_us:,.0f}",
            *(f"{cost.churn_us[shapes]:,.1f}" for shapes in churned),
            f"{cost.tied_us:.1f}",
            "–" if cost.refusal_us is None else f"{cost.refusal_us:.1f}",
            f"{cost.heartbeat_changed_us:.1f}",
            f"{cost.heartbeat_unchanged_us:.1f}",
            f"{cost.heartbeat_noop_us:.1f}",
        )
    return table


def batch_cost_table(costs: Sequence[FleetCost]) -> Table:
    sizes = list(costs[0].batch_cpu_us) if costs else []
    columns = ("by itself" if size == 0 else f"in a batch of {size}" for size in sizes)
    table = _table("What one placement of one shape costs Redis in a batch (µs of CPU)", "nodes", *columns)
    for cost in costs:
        table.add_row(f"{cost.nodes:,}", *(f"{cost.batch_cpu_us[size]:,.1f}" for size in sizes))
    return table


def refusals(refused: Mapping[str, int]) -> str:
    """`12 (insufficient_cpu 9, insufficient_memory 3)`, most frequent first."""
    if not refused:
        return "0"
    parts = sorted(refused.items(), key=lambda item: (-item[1], item[0]))
    return f"{sum(refused.values()):,} ({', '.join(f'{reason} {count:,}' for reason, count in parts)})"


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table
