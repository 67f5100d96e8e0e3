"""Registry of tasks by name.

A task file of your own is named by its path, `task=my_task.py`, and is executed like any Python file. Only users name
such files, on the command line or in Python. Names that come from data go through `find_task`, which runs no file.
"""

import importlib
import pkgutil
import re
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from embodied_sim.sim_errors import SimError, describe_error, lookup
from embodied_sim.task import Task
from embodied_sim.task_check import check_task

_TASKS: dict[str, type[Task]] = {}
TASKS_GROUP = "embodied_sim.tasks"  # entry-point group of packages that register tasks of their own
_TASKS_PACKAGE = "embodied_sim.tasks"


def register(task: type[Task]) -> type[Task]:
    """Register a task class by its name; a class decorator.

    A class that is defined again, as in a notebook, replaces the old one.

    Raises:
        SimError: The name is invalid, or another task has it.
    """
    name = getattr(task, "name", None)
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise SimError(f"{task.__qualname__}.name must be a lowercase identifier such as 'lift_cube', got {name!r}")
    registered = _TASKS.setdefault(name, task)
    if (registered.__module__, registered.__qualname__) != (task.__module__, task.__qualname__):
        raise SimError(
            f"two tasks are called {name!r}: {registered.__qualname__} of {registered.__module__} has that name already"
        )
    _TASKS[name] = task
    return task


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, sorted."""
    package = importlib.import_module(_TASKS_PACKAGE)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{_TASKS_PACKAGE}.{module.name}")
    _load_plugins()
    return tuple(sorted(_TASKS))


@cache
def _load_plugins() -> None:
    """Import the modules that installed packages declare in the entry-point group, once."""
    for entry_point in entry_points(group=TASKS_GROUP):
        try:
            entry_point.load()
        except Exception as error:
            raise SimError(
                f"the plugin {entry_point.name} = {entry_point.value} of {TASKS_GROUP} cannot be imported "
                f"({type(error).__name__}: {error}): mend or uninstall its package"
            ) from error


def find_task(name: str) -> Task:
    """Return the registered task of that name; run no file. Raises `SimError` for an unknown name, with all choices.

    Names from data (a divergence dump, a dataset's metadata) are resolved here, because data never name code.
    """
    task_names()
    return _instantiate(lookup(_TASKS, name, "task"))


def make_task(name: str) -> Task:
    """Return the task of that name, or run the Python file at that path and return its task.

    Raises:
        SimError: For an unknown name, with the nearest name and all choices; for problems that `check_task` finds.
    """
    if not name.endswith(".py"):
        return find_task(name)
    task_names()
    return _instantiate(_load_task_file(Path(name).resolve()))


def _instantiate(task: type[Task]) -> Task:
    if not task.__module__.startswith(f"{_TASKS_PACKAGE}."):
        _check_once(task)
    return task()


_check_once = cache(check_task)


@cache
def _load_task_file(path: Path) -> type[Task]:
    """Run the file and return the one task that it registers."""
    if not path.is_file():
        raise SimError(f"{path}: there is no such file")
    _import_file(path)
    registered = [task for task in _TASKS.values() if task.__module__ == str(path)]
    if len(registered) != 1:
        names = ", ".join(task.name for task in registered) or "none"
        raise SimError(f"{path}: it must register one task, write @register above its class; it registers {names}")
    return registered[0]


def _import_file(path: Path) -> None:
    """Import the file as a module whose name is its path, so that file names need not be unique."""
    spec = spec_from_file_location(str(path), path)
    assert spec is not None and spec.loader is not None
    sys.modules[spec.name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SimError:
        raise
    except (Exception, SystemExit) as error:
        raise SimError(f"{path}: running it ended in {describe_error(error, str(path))}") from error
