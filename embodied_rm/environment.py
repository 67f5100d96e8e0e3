"""The environment of the process: its folders and variables, whose mistakes are one sentence."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embodied_rm.errors import UserError

REJECTED_VARIABLES = {
    "invalid value for environment variable MUJOCO_GL": ("MUJOCO_GL", "egl, osmesa, glfw or off"),
    "Key backend: ": ("MPLBACKEND", "a backend of matplotlib, such as agg"),
}
"""Start of the message of a library that rejects a variable -> the variable, and what it may be."""


@contextmanager
def checked_environment() -> Iterator[None]:
    """Raise `UserError` for a missing folder of the process, or if a library rejects a variable in the block."""
    check_folders()
    try:
        yield
    except (RuntimeError, ValueError) as error:
        for start, (name, choices) in REJECTED_VARIABLES.items():
            if str(error).startswith(start):
                raise UserError(variable_message(name, choices)) from None
        raise


def check_folders() -> None:
    """Raise `UserError` unless the process has a working directory, and a folder for temporary files."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UserError("the working directory was deleted: change to another one") from None
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        raise UserError("no folder for temporary files can be written: set TMPDIR to one") from None


def require_variable(name: str) -> str:
    """Return the value of an environment variable; `UserError` if it is not set."""
    if name not in os.environ:
        raise UserError(f"the environment variable {name} is not set")
    return os.environ[name]


def variable_message(name: str, choices: str) -> str:
    """Return the message for an environment variable whose value is none of its choices."""
    return f"the environment variable {name} must be {choices}, got {os.environ.get(name)!r}"


def whole_number(name: str, default: int, minimum: int) -> int:
    """Return an environment variable that is a whole number; `UserError` if it is none, or too small."""
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdigit() and int(text) >= minimum):
        raise UserError(variable_message(name, f"a whole number >= {minimum}"))
    return int(text)


def rank_and_world_size() -> tuple[int, int]:
    """Return rank and world size from the environment that torchrun sets; (0, 1) without torchrun."""
    rank, world_size = whole_number("RANK", 0, 0), whole_number("WORLD_SIZE", 1, 1)
    if rank >= world_size:
        raise UserError(variable_message("RANK", f"below WORLD_SIZE, {world_size}"))
    return rank, world_size
