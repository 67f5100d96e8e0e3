"""`embodied-rm tasks`: what the simulator offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.atomic_file import write_atomic
from embodied_rm.cli.command import Command
from embodied_rm.errors import UserError
from embodied_rm.report.sheet import SheetRow, draw_sheet
from embodied_rm.run import Reporter, RunFolder
from sim.registry import make_task, task_names
from sim.vec_env import CONTROL_HZ, TabletopVecEnv

PICTURE_SIZE = 256
"""Height and width of a picture on the sheet, pixels."""


@dataclass(frozen=True, kw_only=True)
class TasksConfig:
    """Which tasks to show, and where to draw them."""

    task: str | None = None
    sheet: Path | None = None

    def __post_init__(self) -> None:
        if self.sheet is not None and self.sheet.suffix != ".png":
            raise UserError(f"sheet must be a file that ends in .png, got {self.sheet}")


def show_tasks(config: TasksConfig, run: RunFolder, reporter: Reporter) -> None:
    """One table a task, and the sheet."""
    names = task_names() if config.task is None else (config.task,)
    for name in names:
        task = make_task(name)
        reporter.table(
            task.name,
            {
                "instruction": " / ".join(task.templates),
                "steps": task.steps,
                "time limit": f"{task.max_episode_steps} steps, {task.max_episode_steps / CONTROL_HZ:.0f} s",
                "failures": sorted(task.failures()),
            },
        )
    if config.sheet is not None:
        write_sheet(config.sheet, names, reporter)


def write_sheet(path: Path, names: Sequence[str], reporter: Reporter) -> None:
    """A png with the pictures of every task at the start of an episode; its folder is made."""
    rows = [picture(name) for name in reporter.track(names, "draw tasks")]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, draw_sheet(rows))
    reporter.note(f"pictures of {len(rows)} tasks written to {path}")


def picture(name: str) -> SheetRow:
    """The task at the start of an episode, under its instruction."""
    world = TabletopVecEnv(name, 1, image_size=PICTURE_SIZE)
    try:
        world.reset(seed=0)
        views = dict(zip(world.view_names, world.render_views()[0], strict=True))
        return SheetRow(caption=f"{world.task.name}: {world.instructions[0]}", views=views)
    finally:
        world.close()


COMMAND = Command(schema=TasksConfig, start=show_tasks, keeps_run=False)
