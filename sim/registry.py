"""Name -> task. A task file registers its class; asking for an unknown name lists the known ones."""

from __future__ import annotations

import importlib
import pkgutil

from sim.errors import lookup
from sim.task import Task

_TASKS: dict[str, type[Task]] = {}


def register(task: type[Task]) -> type[Task]:
    """Class decorator: make the task known by its name."""
    assert task.name not in _TASKS, f"two tasks are called {task.name}"
    _TASKS[task.name] = task
    return task


def task_names() -> tuple[str, ...]:
    """The names of all tasks, sorted."""
    package = importlib.import_module("sim.tasks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"sim.tasks.{module.name}")
    return tuple(sorted(_TASKS))


def make_task(name: str) -> Task:
    """The task of that name. Raises `SimError` with the nearest name and all choices."""
    task_names()
    return lookup(_TASKS, name, "task")()
