"""The mistakes a user of the simulator can make: each message names the thing, the value and the choices."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


class SimError(ValueError):
    """A mistake in what the user asked of the simulator. Its message is for reading: no traceback is needed."""


def lookup(table: Mapping[str, T], name: str, kind: str) -> T:
    """`table[name]`, or a `SimError` that says what was asked for, the nearest name and all there are."""
    if name in table:
        return table[name]
    matches = difflib.get_close_matches(name, table, n=1)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    raise SimError(f"unknown {kind} {name!r}.{hint} Available: {', '.join(sorted(table))}")


def describe_error(error: Exception, source_file: str) -> str:
    """What an error says first, and the last line of somebody's `file` that it came through."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source_file]
    location = f" (line {lines[-1]} of {source_file})" if lines else ""
    return f"{type(error).__name__}: {''.join(str(error).splitlines()[:1])}{location}"
