"""A run of Weights & Biases (extra `wandb`): offline, unless the user says otherwise by W&B's own WANDB_MODE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.run import Reporter, RunFolder

CONFIG = "config.json"
"""What a run folder says of its settings."""
OFFLINE = "offline"
FORBIDDEN = '/\\#?%:"'
"""Letters that W&B takes in no name of a project."""
LONGEST = 128


class WandbRun:
    """What is written to a run that was started."""

    name = "Weights & Biases"

    def __init__(self, run: Any, faults: tuple[type[Exception], ...]) -> None:
        self._run = run
        self.faults = faults

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of a step."""
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=int(failed))


def refuse_project(project: str | None) -> None:
    """Raises `UserError` for a name that no project can have, and where W&B is not installed; None asks for none."""
    if project is None:
        return
    if not project or len(project) > LONGEST or not set(project).isdisjoint(FORBIDDEN):
        raise UserError(
            f"wandb is the name of a project, 1 to {LONGEST} letters without {' '.join(FORBIDDEN)}, got {project!r}"
        )
    package = find_spec("wandb")
    if package is None or package.origin is None:  # a folder in which runs of W&B lie is called wandb, too
        raise UserError("wandb= needs Weights & Biases, an optional package: pip install 'embodied-rm[wandb]'")


def start_run(folder: RunFolder, reporter: Reporter, project: str) -> WandbRun | None:
    """Start a run in the run folder; None, and a note, where W&B cannot: a log that fails ends no training.

    Every start is a run of its own, all of one run folder in one group.
    """
    mode = os.environ.get("WANDB_MODE") or OFFLINE
    if mode == OFFLINE:
        # Its reports on itself look a host of W&B's up, offline too; with this it opens no connection (strace, 0.31).
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    faults = (wandb.Error, OSError)
    try:
        run = wandb.init(
            project=project,
            dir=str(folder.path),
            group="/".join(folder.path.resolve().parts[-2:])[-LONGEST:],
            config=folder.read_json(CONFIG) if (folder.path / CONFIG).exists() else None,
            reinit="create_new",  # never a run that whoever called us has under way
            settings={"mode": mode, "console": "off", "silent": True},
        )
    except (*faults, ValueError) as fault:  # ValueError: a WANDB_ variable that makes no sense
        reporter.note(f"Weights & Biases did not start, the run goes on without it: {fault}")
        return None
    reporter.note(f"Weights & Biases, {mode}: {Path(run.dir).parent if mode == OFFLINE else run.url}")
    return WandbRun(run, faults)
