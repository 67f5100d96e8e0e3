"""Plots for results that are kept as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def plot_scaling(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write a png: steps per second and memory over the number of environments."""
    figure = Figure(figsize=(8, 3.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    speed, memory = figure.subplots(1, 2)
    counts = [row["num_envs"] for row in rows]
    for key, label in (("physics_env_steps_per_s", "physics alone"), ("env_steps_per_s", "every view drawn")):
        speed.plot(counts, [row[key] for row in rows], marker="o", label=label)
    memory.plot(counts, [row["memory_mib"] for row in rows], marker="o", color="tab:grey")
    for axes, title in ((speed, "environment steps per second"), (memory, "memory, MiB")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("environments")
        axes.set_title(title, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    speed.legend(frameon=False)
    figure.savefig(path)


Band = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Mean, lower and upper bound."""


def plot_learning(path: Path, tasks: Mapping[str, Mapping[str, Band]], level: float) -> None:
    """Write a png: for each task the success of every rule over the iterations, with its band."""
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(4 * columns, 2.8 * rows), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    every = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (task, rules) in zip(every, tasks.items(), strict=False):
        for rule, (mean, low, high) in rules.items():
            (line,) = axes.plot(mean, label=rule)
            axes.fill_between(range(len(mean)), low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        axes.axhline(level, color="0.6", linewidth=0.8, linestyle=":")
        axes.set_title(task, fontsize=10)
        axes.set_xlabel("iteration")
        axes.set_ylim(0, 1.02)
        axes.grid(alpha=0.3)
    for axes in every[len(tasks) :]:
        axes.set_axis_off()
    every[0].set_ylabel("success")
    every[0].legend(frameon=False, fontsize=8)
    figure.savefig(path)
