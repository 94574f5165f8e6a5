"""A replay as a picture: the fleet's highest pressure and its imbalance over time, one line a strategy."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from scheduler.errors import ConfigurationError
from scheduler.lab.replay import ReplayResult

SUFFIXES = (".png", ".svg")
MS_PER_HOUR = 3_600_000


def check_plot_file(file: Path) -> None:
    """Say what is wrong before the replay, not after it."""
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigurationError(f"--plot must name a .png or .svg file, not {file.name!r}")
    if not file.absolute().parent.is_dir():
        raise ConfigurationError(f"--plot: there is no directory {file.absolute().parent}")
    if find_spec("matplotlib") is None:
        raise ConfigurationError("--plot needs matplotlib: pip install 'agentenv-scheduler[plot]'")


def draw(results: Sequence[ReplayResult], file: Path) -> None:
    """Write the picture; the format is the file's suffix."""
    # Only here: matplotlib is large, and an extra.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    pressure, imbalance = figure.subplots(2, 1, sharex=True)
    for result in results:
        start_ms = result.curve[0].at_ms
        hours = [(moment.at_ms - start_ms) / MS_PER_HOUR for moment in result.curve]
        label = f"{result.contender.label} (peak {result.peak_pressure:.2f})"
        pressure.step(hours, [moment.highest for moment in result.curve], where="post", label=label)
        imbalance.step(hours, [moment.imbalance for moment in result.curve], where="post")
    pressure.axhline(1.0, color="grey", linestyle=":", linewidth=1)
    pressure.set_ylabel("highest pressure of a node")
    pressure.legend(loc="upper left")
    imbalance.set_ylabel("imbalance (standard deviation)")
    imbalance.set_xlabel("hours since the first arrival")
    for axes in (pressure, imbalance):
        axes.set_ylim(bottom=0)
    figure.savefig(file, format=file.suffix.lower().removeprefix("."))
