"""Grid of tasks and bundled arms for benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from embodied_sim.registry import task_names
from embodied_sim.robots import ROBOTS
from embodied_sim.sim_errors import lookup


def task_robot_pairs(tasks: Sequence[str]) -> list[tuple[str, str]]:
    """Return (task, robot) pairs for these tasks, or for all if empty. Raises `SimError` for an unknown task."""
    task_by_name = {name: name for name in task_names()}
    return list(product([lookup(task_by_name, task, "task") for task in tasks] or task_by_name, ROBOTS))
