"""Mistakes in values that the YAML files alone show, before torch or the simulator is imported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from embodied_rm.cli.config_errors import TYPE_NAMES, leaf_keys
from embodied_rm.config_files import command_display_name
from embodied_rm.errors import UserError

PATH_KEYS = (
    "action_free_data",
    "checkpoint",
    "comparisons",
    "data",
    "demonstration",
    "held_out",
    "init_from",
    "policy",
    "preference_model",
    "program",
    "recorded_data",
    "scores",
)
"""Last parts of keys that name a file or folder that must exist."""
COMMANDS_WITHOUT_PATHS = ("build_checkpoint", "demo", "play")
"""Commands whose keys of these names are paths in their own run folder, or names of policies."""
NAMES_WITHOUT_FOLDER = ("tabletop", "long", "real")  # bundled models
REMOTE_PREFIXES = ("hf:", "hub:")


def check_values(command: str, before: DictConfig, after: DictConfig) -> None:
    """Raise `UserError` for a required key without a value, a text in place of a number, or a path that is not there.

    Args:
        command: The command.
        before: Its config, untyped, without the overrides.
        after: The same with them.
    """
    for key in leaf_keys(after):
        if OmegaConf.is_missing(*parent_and_name(after, key)):
            display = command_display_name(command)
            raise UserError(f"{key} is required: embodied-rm {display} {key}=...; see --help")
        value, default = (OmegaConf.select(config, key) for config in (after, before))
        if isinstance(value, str) and isinstance(default, bool | int | float):
            raise UserError(f"{key} must be {TYPE_NAMES[type(default)]}, got {value}")
        is_path = key.split(".")[-1] in PATH_KEYS and command not in COMMANDS_WITHOUT_PATHS
        if is_path and value != default:
            for name in names_in(value):
                check_exists(key, name)


def parent_and_name(config: DictConfig, key: str) -> tuple[Any, str]:
    """Return the mapping that has a dotted key, and the last part of the key."""
    parent, _, name = key.rpartition(".")
    return (OmegaConf.select(config, parent) if parent else config), name


def names_in(value: object) -> Iterator[str]:
    """Yield the texts of a value, which may be a list."""
    if isinstance(value, str):
        yield value
    elif OmegaConf.is_list(value):
        items: Sequence[object] = value  # type: ignore[assignment]
        yield from (item for item in items if isinstance(item, str))


def check_exists(key: str, name: str) -> None:
    """Raise `UserError` if a file or folder does not exist."""
    if name.startswith(REMOTE_PREFIXES) or name in NAMES_WITHOUT_FOLDER or Path(name).exists():
        return
    is_hub_like = key.endswith("data") and len(Path(name).parts) == 2 and not name.startswith((".", "/"))
    hint = f"; a dataset of the Hugging Face Hub is {key}=hub:{name}" if is_hub_like else ""
    raise UserError(f"{key}={name} does not exist{hint}")
