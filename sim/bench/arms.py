"""What a benchmark of tasks goes through: every task with every arm of the box."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from sim.errors import lookup
from sim.registry import task_names
from sim.robots import ROBOTS


def every_arm(tasks: Sequence[str]) -> list[tuple[str, str]]:
    """(task, robot) for those tasks, or for all where none is named. Raises `SimError` for an unknown task."""
    known = {name: name for name in task_names()}
    return list(product([lookup(known, task, "task") for task in tasks] or known, ROBOTS))
