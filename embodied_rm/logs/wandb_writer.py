"""A run of Weights & Biases (extra `wandb`): offline, unless the user says otherwise by W&B's own WANDB_MODE."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.run_folder import Reporter, RunFolder

CONFIG_FILE = "config.json"
"""What a run folder says of its settings."""
OFFLINE_MODE = "offline"
FORBIDDEN_CHARS = '/\\#?%:"'
"""Letters that W&B takes in no name of a project."""
MAX_NAME_CHARS = 128


class WandbWriter:
    """What is written to a run that was started."""

    name = "Weights & Biases"

    def __init__(self, run: Any, recoverable_errors: tuple[type[Exception], ...]) -> None:
        self._run = run
        self.recoverable_errors = recoverable_errors

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers of a step."""
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=int(failed))


def check_wandb_project(project: str | None) -> None:
    """Raises `UserError` for a name that no project can have, and where W&B is not installed; None asks for none."""
    if project is None:
        return
    if not project or len(project) > MAX_NAME_CHARS or not set(project).isdisjoint(FORBIDDEN_CHARS):
        raise UserError(
            f"wandb is the name of a project, 1 to {MAX_NAME_CHARS} letters without {' '.join(FORBIDDEN_CHARS)}, got {project!r}"
        )
    spec = find_spec("wandb")
    if spec is None or spec.origin is None:  # a folder in which runs of W&B lie is called wandb, too
        raise UserError("wandb= needs Weights & Biases, an optional package: pip install 'embodied-rm[wandb]'")


def start_wandb_run(run_folder: RunFolder, reporter: Reporter, project: str) -> WandbWriter | None:
    """Start a run in the run folder; None, and a note, where W&B cannot: a log that fails ends no training.

    Every start is a run of its own, all of one run folder in one group.
    """
    mode = os.environ.get("WANDB_MODE") or OFFLINE_MODE
    if mode == OFFLINE_MODE:
        # Its reports on itself look a host of W&B's up, offline too; with this it opens no connection (strace, 0.31).
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    recoverable_errors = (wandb.Error, OSError)
    try:
        run = wandb.init(
            project=project,
            dir=str(run_folder.path),
            group="/".join(run_folder.path.resolve().parts[-2:])[-MAX_NAME_CHARS:],
            config=run_folder.read_json(CONFIG_FILE) if (run_folder.path / CONFIG_FILE).exists() else None,
            reinit="create_new",  # never a run that whoever called us has under way
            settings={"mode": mode, "console": "off", "silent": True},
        )
    except (*recoverable_errors, ValueError) as error:  # ValueError: a WANDB_ variable that makes no sense
        reporter.log(f"Weights & Biases did not start, the run goes on without it: {error}")
        return None
    reporter.log(f"Weights & Biases, {mode}: {Path(run.dir).parent if mode == OFFLINE_MODE else run.url}")
    return WandbWriter(run, recoverable_errors)
