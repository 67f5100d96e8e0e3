"""Weights & Biases writer (extra `wandb`), offline unless the environment variable WANDB_MODE is set."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.run_folder import Reporter, RunFolder

CONFIG_FILE = "config.json"  # file of the configuration in a run folder
OFFLINE_MODE = "offline"
FORBIDDEN_CHARS = '/\\#?%:"'
"""Characters that W&B forbids in project names."""
MAX_NAME_CHARS = 128


class WandbWriter:
    """Writes rows to a W&B run."""

    name = "Weights & Biases"

    def __init__(self, run: Any, recoverable_errors: tuple[type[Exception], ...]) -> None:
        self._run = run
        self.recoverable_errors = recoverable_errors

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Log the scalars of a step."""
        self._run.log(dict(values), step=step)

    def close(self, *, failed: bool) -> None:
        """Finish the run."""
        self._run.finish(exit_code=int(failed))


def check_wandb_project(project: str | None) -> None:
    """Raise `UserError` if there is a project and W&B forbids its name or is not installed."""
    if project is None:
        return
    if not project or len(project) > MAX_NAME_CHARS or not set(project).isdisjoint(FORBIDDEN_CHARS):
        expected = f"1 to {MAX_NAME_CHARS} characters without {' '.join(FORBIDDEN_CHARS)}"
        raise UserError(f"wandb_project must be a project name of {expected}, got {project!r}")
    spec = find_spec("wandb")
    if spec is None or spec.origin is None:  # the folder of W&B runs is called wandb too, and has no origin
        raise UserError("wandb_project= needs Weights & Biases, an optional package: pip install 'embodied-rm[wandb]'")


def start_wandb_run(run_folder: RunFolder, reporter: Reporter, project: str) -> WandbWriter | None:
    """Start a W&B run in the run folder. Every session is a separate run; those of one folder share a group.

    None: W&B failed to start, which is reported and does not end the training.
    """
    mode = os.environ.get("WANDB_MODE") or OFFLINE_MODE
    if mode == OFFLINE_MODE:
        # W&B reports its own errors to a server, also offline. Without reports it opens no connection (strace, 0.31).
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    recoverable_errors = (wandb.Error, OSError)
    try:
        run = wandb.init(
            project=project,
            dir=str(run_folder.path),
            group="/".join(run_folder.path.resolve().parts[-2:])[-MAX_NAME_CHARS:],
            config=run_folder.read_json(CONFIG_FILE) if (run_folder.path / CONFIG_FILE).exists() else None,
            reinit="create_new",  # do not join a run of the calling program
            settings={"mode": mode, "console": "off", "silent": True},
        )
    except (*recoverable_errors, ValueError) as error:  # ValueError: an invalid WANDB_ variable
        reporter.log(f"Weights & Biases did not start; the run continues without it: {error}")
        return None
    reporter.log(f"Weights & Biases, {mode}: {Path(run.dir).parent if mode == OFFLINE_MODE else run.url}")
    return WandbWriter(run, recoverable_errors)
