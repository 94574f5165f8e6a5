"""Pressure, imbalance and hits against figures worked out by hand, and against a plain recount."""

from __future__ import annotations

import random
import statistics

import pytest

from scheduler.lab.measures import Moment, PressureRecord, WarmKeys, thinned, weighted_quantile
from scheduler.lab.trace import NodeSpec

NODES = (NodeSpec("a", 10, 1000), NodeSpec("b", 20, 1000))


def test_pressure_is_the_tighter_dimension_and_the_peak_stays() -> None:
    record = PressureRecord(NODES, 0)
    record.add("a", 1, 900, 0)
    record.remove("a", 1, 900, 10)
    record.close(20)
    assert record.peak_pressure == 0.9


def test_a_node_of_unknown_capacity_bears_no_pressure() -> None:
    record = PressureRecord((NodeSpec("a", 0, 0), NodeSpec("b", 4, 0)), 0)
    record.add("a", 100, 100, 0)
    record.add("b", 2, 100, 0)
    assert record.peak_pressure == 0.5


def test_p99_weighs_by_time_and_covers_every_node() -> None:
    record = PressureRecord(NODES, 0)
    record.add("a", 10, 0, 0)
    record.remove("a", 10, 0, 3)  # 3 of 200 node-milliseconds at full pressure: 1.5 %
    record.close(100)
    assert record.p99_pressure == 1.0
    brief = PressureRecord(NODES, 0)
    brief.add("a", 10, 0, 0)
    brief.remove("a", 10, 0, 1)  # 0.5 %
    brief.close(100)
    assert brief.p99_pressure == 0.0


def test_imbalance_is_the_standard_deviation_between_nodes_averaged_over_time() -> None:
    record = PressureRecord(NODES, 0)
    record.add("a", 10, 0, 0)  # pressures 1 and 0: deviation 0.5 …
    record.add("b", 20, 0, 25)  # … until both are full
    record.close(100)
    assert record.mean_imbalance == pytest.approx(0.125)


def test_running_sums_agree_with_a_recount_whatever_happens() -> None:
    rng = random.Random(7)
    nodes = [NodeSpec(f"n{number}", rng.randint(1, 64), rng.randint(1, 64)) for number in range(9)]
    record, placed, loads = PressureRecord(nodes, 0), [], {node.node_id: [0, 0] for node in nodes}  # type: ignore[var-annotated]
    for at_ms in range(500):
        if placed and rng.random() < 0.45:
            node_id, cpu_count, memory_mb = placed.pop(rng.randrange(len(placed)))
            record.remove(node_id, cpu_count, memory_mb, at_ms)
            loads[node_id][0] -= cpu_count
            loads[node_id][1] -= memory_mb
        else:
            node_id, cpu_count, memory_mb = rng.choice(nodes).node_id, rng.randint(0, 8), rng.randint(0, 8)
            placed.append((node_id, cpu_count, memory_mb))
            record.add(node_id, cpu_count, memory_mb, at_ms)
            loads[node_id][0] += cpu_count
            loads[node_id][1] += memory_mb
        pressures = [max(loads[n.node_id][0] / n.cpu_count, loads[n.node_id][1] / n.memory_mb) for n in nodes]
        assert record.moments[-1].highest == max(pressures)
        assert record.moments[-1].imbalance == pytest.approx(statistics.pstdev(pressures), abs=1e-6)


def test_a_run_without_duration_still_has_figures() -> None:
    record = PressureRecord(NODES, 5)
    record.add("a", 5, 0, 5)
    record.close(5)
    assert record.p99_pressure == 0.5
    assert record.mean_imbalance == pytest.approx(0.25)


def test_a_node_keeps_the_keys_it_ran_last() -> None:
    warm = WarmKeys(2)
    assert [warm.run("a", key) for key in ("x", "y", "x", "z", "x", "y")] == [False, False, True, False, True, False]
    assert not warm.run("b", "x"), "warm on one node is cold on another"
    assert warm.hit_rate == pytest.approx(2 / 7)


def test_requests_without_a_key_ask_nothing() -> None:
    warm = WarmKeys(2)
    warm.run("a", "")
    assert warm.hit_rate is None


@pytest.mark.parametrize(
    ("pairs", "share", "expected"),
    [
        ([], 0.5, 0.0),
        ([(1.0, 1), (2.0, 1), (3.0, 2)], 0.5, 2.0),
        ([(3.0, 2), (1.0, 98)], 0.99, 3.0),
        ([(3.0, 1), (1.0, 99)], 0.99, 1.0),
        ([(5.0, 0), (1.0, 0)], 1.0, 5.0),
    ],
)
def test_quantiles_by_weight(pairs: list[tuple[float, int]], share: float, expected: float) -> None:
    assert weighted_quantile(pairs, share) == expected


def test_a_thinned_curve_keeps_the_peaks_and_the_average() -> None:
    moments = [Moment(at_ms, highest=float(at_ms == 777), imbalance=at_ms / 1000) for at_ms in range(1001)]
    drawn = thinned(moments, 10)
    assert len(drawn) == 10
    assert max(moment.highest for moment in drawn) == 1.0
    assert sum(moment.imbalance for moment in drawn) / len(drawn) == pytest.approx(0.4995)


def test_a_curve_of_one_instant_is_that_instant() -> None:
    assert thinned([Moment(3, 1.0, 0.5)], 10) == [Moment(3, 1.0, 0.5)]
