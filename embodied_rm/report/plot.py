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
