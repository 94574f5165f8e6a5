"""What no placement could better, against every placement there is of a few sandboxes on a few machines."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from scheduler.lab.bounds import Stay, bounds_of, fewest_nodes, least_peak
from scheduler.lab.trace import NodeSpec

pytest.importorskip("scipy", reason="the bounds are an extra")

Shape = tuple[int, int]


def amounts(shapes: list[Shape]) -> frozenset[tuple[Shape, int]]:
    return frozenset(Counter(shapes).items())


def pressures(machines: list[Shape], placed: tuple[int, ...], sizes: list[Shape]) -> list[float]:
    loads = [
        [sum(size[dimension] for size, at in zip(sizes, placed, strict=True) if at == index) for dimension in (0, 1)]
        for index in range(len(machines))
    ]
    return [
        max((load / has for load, has in zip(loads[index], machine, strict=True) if has), default=0.0)
        for index, machine in enumerate(machines)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_no_placement_is_below_the_bounds(seed: int) -> None:
    draw = random.Random(seed)
    machines = [(draw.choice([2, 4, 8, 0]), draw.choice([1024, 4096, 8192])) for _ in range(3)]
    sizes = [(draw.randint(0, 3), draw.choice([128, 512, 2048])) for _ in range(5)]
    best_peak, best_count = float("inf"), None
    for placed in itertools.product(range(3), repeat=len(sizes)):
        peak = max(pressures(machines, placed, sizes))
        best_peak = min(best_peak, peak)
        if peak <= 1 and (best_count is None or len(set(placed)) < best_count):
            best_count = len(set(placed))
    least, fewest = least_peak(amounts(machines), amounts(sizes)), fewest_nodes(amounts(machines), amounts(sizes))
    assert 0 <= least <= best_peak + 1e-6
    if best_count is not None:
        assert fewest is not None
        assert fewest <= best_count


def test_one_large_sandbox_sets_the_peak_that_an_even_spread_would_not() -> None:
    machines = amounts([(16, 0), (4, 0), (4, 0)])
    assert least_peak(machines, amounts([(12, 0)])) == pytest.approx(0.75), "cut in pieces it would be a half"
    assert least_peak(machines, amounts([(12, 0), (6, 0)])) == pytest.approx(18 / 16), "on a small one: 6 of 4"
    assert least_peak(machines, frozenset()) == 0.0


def test_a_load_beyond_the_fleet_needs_more_nodes_than_there_are() -> None:
    machines = amounts([(4, 1024)] * 2)
    assert fewest_nodes(machines, amounts([(2, 512)] * 4)) == 2
    assert fewest_nodes(machines, amounts([(2, 512)] * 5)) is None
    assert fewest_nodes(machines, amounts([(5, 1)])) is None, "no machine holds it alone"


def test_the_bounds_of_a_run_are_those_of_its_busiest_instant_and_of_its_mean() -> None:
    nodes = [NodeSpec(name, 4, 8192) for name in "abcd"]
    stays = [Stay(0, 50_000, 4, 100), Stay(0, 50_000, 4, 100), Stay(50_000, None, 2, 100)]
    bounds = bounds_of(nodes, stays, 100_000)
    assert (bounds.peak_pressure, bounds.nodes) == (pytest.approx(1.0), 2)
    assert bounds.nodes_mean == pytest.approx(1.5, abs=0.05)
    assert bounds_of(nodes, [], 0).nodes == 0
