"""Run folders from the command line's side: one config each, never another run's."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from embodied_rm.cli.config_errors import differing_keys
from embodied_rm.errors import UserError
from embodied_rm.run_folder import RunFolder


def open_run(name: str, config: Any, folder: Path, *, resume: bool, ignored_keys: Sequence[str] = ()) -> RunFolder:
    """Open the run folder of a command and write the resolved config into it; `how`: see `Command`.

    Raises `UserError` when it holds a run that may not be continued, or another one than this.
    """
    run = RunFolder.open(folder, resume=resume)
    resolved = {"command": name, "config": json.loads(json.dumps(dataclasses.asdict(config), default=str))}
    if (folder / "config.json").exists():
        _check_same_config(run.read_json("config.json"), resolved, folder, ignored_keys)
    else:
        run.write_json("config.json", {**resolved, "version": version("embodied-rm")})
    return run


def remove_empty_run(run: RunFolder) -> None:
    """Take back the folder of a run that a mistake ended before it wrote anything, so that it can be tried again."""
    if {path.name for path in run.path.iterdir()} == {"config.json"}:
        (run.path / "config.json").unlink()
        run.path.rmdir()


def _check_same_config(
    stored: dict[str, Any], current: dict[str, Any], folder: Path, ignored_keys: Sequence[str]
) -> None:
    if stored["command"] != current["command"]:
        raise UserError(f"the run in {folder} is one of embodied-rm {stored['command']}, not of {current['command']}")
    if changed := [key for key in differing_keys(stored["config"], current["config"]) if key not in ignored_keys]:
        raise UserError(f"the run in {folder} was started with other values of {', '.join(changed)}: not resumed")
