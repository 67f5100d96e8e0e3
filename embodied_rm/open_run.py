"""Open the run folder of a command: one resolved config per folder, and never the folder of another run."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.run_folder import RunFolder


def open_run(
    name: str,
    config: Any,
    folder: Path,
    *,
    resume: bool,
    ignored_keys: Sequence[str] = (),
    resumable: bool = True,
) -> RunFolder:
    """Open the run folder of a command and write the resolved config, a frozen dataclass, into it.

    `resume` continues an interrupted run, which may change `ignored_keys`. Raises `UserError` if the folder holds a run
    that may not be continued, or a run of another command or config. A command that is not `resumable` begins anew.
    """
    if is_unfinished(folder) and not resume and not resumable:
        raise UserError(
            f"the folder {folder} holds an unfinished run, which cannot be continued: pass resume=true to begin anew, "
            "or another out="
        )
    run = RunFolder.open(folder, resume=resume)
    resolved = {"command": name, "config": json.loads(json.dumps(dataclasses.asdict(config), default=str))}
    if (folder / "config.json").exists():
        _check_same_config(run.read_json("config.json"), resolved, folder, ignored_keys)
    else:
        run.write_json("config.json", {**resolved, "version": version("embodied-rm")})
    return run


def is_unfinished(folder: Path) -> bool:
    """Return whether a folder holds a run that has begun and not finished."""
    return (folder / "config.json").exists() and not RunFolder(folder).finished


def remove_empty_run(run: RunFolder, *, with_folder: bool) -> None:
    """Remove what a run left that ended before it wrote any result, so that the command can be repeated.

    The error that ended the run is what matters, so a refusal to remove something is ignored.
    """
    with suppress(OSError):
        if {path.name for path in run.path.iterdir()} <= {"config.json"}:
            run.discard()
            if with_folder:
                run.path.rmdir()


def _check_same_config(
    stored: dict[str, Any], current: dict[str, Any], folder: Path, ignored_keys: Sequence[str]
) -> None:
    if stored.get("command") != current["command"] or not isinstance(stored.get("config"), dict):
        command = stored.get("command")
        raise UserError(f"the run in {folder} is one of embodied-rm {command}, not of {current['command']}")
    if changed := [key for key in differing_keys(stored["config"], current["config"]) if key not in ignored_keys]:
        raise UserError(f"the run in {folder} was started with other values of {', '.join(changed)}: not resumed")


def differing_keys(config: Mapping[str, Any], other_config: Mapping[str, Any]) -> list[str]:
    """Return the dotted names whose values differ between two resolved configs, sorted."""
    values, other_values = dict(_leaf_values(config)), dict(_leaf_values(other_config))
    names = sorted({*values, *other_values})
    return [name for name in names if values.get(name) != other_values.get(name)]


def _leaf_values(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _leaf_values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
