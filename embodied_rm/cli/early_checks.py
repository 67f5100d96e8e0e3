"""Mistakes in values that the YAML files alone show, before torch or the simulator is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from embodied_rm.cli.config_errors import TYPE_NAMES, leaf_keys, missing_key_message
from embodied_rm.data.dataset_path import hub_hint
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
    "starts",
)
"""Last parts of keys that name a file or folder that must exist."""
COMMANDS_WITHOUT_PATHS = ("build_checkpoint", "demo", "play")
"""Commands whose keys of these names are paths in their own run folder, or names of policies."""
NAMES_WITHOUT_FOLDER = ("tabletop", "long", "real")  # bundled models
RECORDED_BY_COMMAND = "demonstrations"  # data that `compare` records itself
REMOTE_PREFIXES = ("hf:", "hub:")


def check_values(command: str, known: DictConfig, values: Mapping[str, object]) -> None:
    """Raise `UserError` for a required key without a value, a text in place of a number, or a path that is not there.

    Args:
        command: The command.
        known: Its config from the YAML files, untyped, with the chosen groups.
        values: The given values by dotted key.
    """
    missing = OmegaConf.missing_keys(known)
    for key in leaf_keys(known):
        if key in missing and not any(key == name or key.startswith(f"{name}.") for name in values):
            raise UserError(missing_key_message(command, key))
    for key, value in values.items():
        default = OmegaConf.select(known, key)
        if isinstance(value, str) and isinstance(default, bool | int | float):
            raise UserError(f"{key} must be {TYPE_NAMES[type(default)]}, got {value}")
        if key.split(".")[-1] in PATH_KEYS and command not in COMMANDS_WITHOUT_PATHS and value != default:
            for name in value if isinstance(value, list) else [value]:
                check_exists(key, str(name))


def check_exists(key: str, name: str) -> None:
    """Raise `UserError` if a file or folder does not exist."""
    if name.startswith(REMOTE_PREFIXES) or name in (*NAMES_WITHOUT_FOLDER, RECORDED_BY_COMMAND) or Path(name).exists():
        return
    hint = hub_hint(Path(name), f"{key}=") if key.endswith("data") else ""
    raise UserError(f"{key}={name} does not exist{hint}")
