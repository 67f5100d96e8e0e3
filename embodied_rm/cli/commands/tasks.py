"""`embodied-rm tasks`: what the simulator offers."""

from __future__ import annotations

from dataclasses import dataclass

from embodied_rm.cli.command import Command
from embodied_rm.run import Reporter, RunFolder
from sim.registry import make_task, task_names
from sim.vec_env import CONTROL_HZ


@dataclass(frozen=True, kw_only=True)
class TasksConfig:
    """Which tasks to show."""

    task: str | None = None


def show_tasks(config: TasksConfig, run: RunFolder, reporter: Reporter) -> None:
    """One table a task."""
    for name in task_names() if config.task is None else (config.task,):
        task = make_task(name)
        reporter.table(
            name,
            {
                "instruction": " / ".join(task.templates),
                "steps": task.steps,
                "time limit": f"{task.max_episode_steps} steps, {task.max_episode_steps / CONTROL_HZ:.0f} s",
                "failures": sorted(task.failures()),
            },
        )


COMMAND = Command(schema=TasksConfig, start=show_tasks, keeps_run=False)
