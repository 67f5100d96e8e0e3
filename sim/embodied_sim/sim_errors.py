"""User errors of the simulator: each message names the setting, the value and the choices."""

import difflib
import traceback
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


class SimError(ValueError):
    """Invalid input of the user. The message is complete; no traceback is needed."""


def lookup(table: Mapping[str, T], name: str, kind: str) -> T:
    """Return `table[name]`. Raises `SimError` with the name, the nearest match and all choices."""
    if name in table:
        return table[name]
    matches = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    raise SimError(f"unknown {kind} {name!r}.{hint} Available: {', '.join(sorted(table))}")


def describe_error(error: BaseException, source_file: str) -> str:
    """Return the first line of an error, and the last line of `source_file` in its traceback."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source_file]
    location = f" (line {lines[-1]} of {source_file})" if lines else ""
    return f"{type(error).__name__}: {''.join(str(error).splitlines()[:1])}{location}"
