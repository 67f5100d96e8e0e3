"""Plots that are stored as images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_rm.atomic_file import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches. matplotlib is imported here: not every run plots."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plot_scaling(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Plot steps per second and memory over the number of environments, as a png."""
    figure = make_figure(8, 3.2)
    speed_axes, memory_axes = figure.subplots(1, 2)
    num_envs = [row["num_envs"] for row in rows]
    for key, label in (("physics_env_steps_per_s", "physics only"), ("env_steps_per_s", "with rendering of all views")):
        speed_axes.plot(num_envs, [row[key] for row in rows], marker="o", label=label)
    memory_axes.plot(num_envs, [row["memory_mib"] for row in rows], marker="o", color="tab:gray")
    for axes, title in ((speed_axes, "environment steps per second"), (memory_axes, "memory, MiB")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("environments")
        axes.set_title(title, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    speed_axes.legend(frameon=False)
    save_figure(figure, path)


ConfidenceBand = tuple[Sequence[float], Sequence[float], Sequence[float]]  # mean, lower and upper bound


def plot_learning_curves(path: Path, tasks: Mapping[str, Mapping[str, ConfidenceBand]], target_success: float) -> None:
    """Plot the success of every reward rule over the iterations, one chart per task, as a png."""
    num_columns = min(3, len(tasks))
    num_rows = -(-len(tasks) // num_columns)
    figure = make_figure(4 * num_columns, 2.8 * num_rows)
    all_axes = figure.subplots(num_rows, num_columns, squeeze=False).ravel()
    for axes, (task, rules) in zip(all_axes, tasks.items(), strict=False):
        for rule, (mean, low, high) in rules.items():
            (line,) = axes.plot(mean, label=rule)
            axes.fill_between(range(len(mean)), low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.axhline(target_success, color="0.6", linewidth=0.8, linestyle=":")
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("iteration")
        axes.set_ylim(0, 1.02)
        axes.grid(alpha=0.3)
    for axes in all_axes[len(tasks) :]:
        axes.set_axis_off()
    all_axes[0].set_ylabel("success")
    all_axes[0].legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a png that is whole or not there."""
    with atomic_file(path) as partial:
        figure.savefig(partial, format="png")
