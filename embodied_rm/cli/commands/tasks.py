"""`embodied-rm tasks`: list the tasks of the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.atomic_file import write_atomic
from embodied_rm.command import Command
from embodied_rm.errors import UserError
from embodied_rm.report.episode_images import ContactSheetRow, draw_contact_sheet
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_sim.registry import make_task, task_names
from embodied_sim.vec_env import CONTROL_HZ, TabletopVecEnv

IMAGE_SIZE_PX = 256  # height and width of an image on the sheet, px


@dataclass(frozen=True, kw_only=True)
class TasksConfig:
    """Config of `tasks`."""

    task: str | None = None
    contact_sheet: Path | None = None

    def __post_init__(self) -> None:
        if self.contact_sheet is not None and self.contact_sheet.suffix != ".png":
            raise UserError(f"contact_sheet must be a file that ends in .png, got {self.contact_sheet}")


def show_tasks(config: TasksConfig, run: RunFolder, reporter: Reporter) -> None:
    """Print one table per task, and draw the contact sheet."""
    names = task_names() if config.task is None else (config.task,)
    for name in names:
        task = make_task(name)
        time_limit = f"{task.max_episode_steps} steps, {task.max_episode_steps / CONTROL_HZ:.0f} s"
        rows = {"instruction": " / ".join(task.templates), "subtasks": task.subtasks, "time limit": time_limit}
        reporter.table(task.name, {**rows, "failures": sorted(task.failure_plans())})
    if config.contact_sheet is not None:
        write_sheet(config.contact_sheet, names, reporter)


def write_sheet(path: Path, names: Sequence[str], reporter: Reporter) -> None:
    """Write a PNG with the initial images of every task; its folder is created."""
    rows = [task_sheet_row(name) for name in reporter.track(names, "draw tasks")]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, draw_contact_sheet(rows))
    reporter.log(f"images of {len(rows)} tasks written to {path}")


def task_sheet_row(name: str) -> ContactSheetRow:
    """Return the contact-sheet row of a task: all views at the start of an episode."""
    env = TabletopVecEnv(name, 1, image_size=IMAGE_SIZE_PX)
    try:
        env.reset(seed=0)
        views = dict(zip(env.view_names, env.render_views()[0], strict=True))
        return ContactSheetRow(caption=f"{env.task.name}: {env.instructions[0]}", views=views)
    finally:
        env.close()


COMMAND = Command(schema=TasksConfig, main=show_tasks, writes_run_folder=False)
