"""The mistakes a user can make: each message names the thing, shows the value and lists the choices."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class UserError(ValueError):
    """A mistake in what the user gave us. The command line prints its message and exits with code 2."""


class DataError(UserError):
    """A dataset or video that cannot be used: the message names the file and the fault."""


class CheckpointError(UserError):
    """A checkpoint that cannot be trusted or does not fit: the message names the file and the fault."""


class CheckFailedError(Exception):
    """What was asked to hold does not. The command line prints the message and exits with code 3."""


def unknown_name_message(name: str, available: Iterable[str], kind: str) -> str:
    """The sentence for an unknown name: the thing, the value, the nearest name, all choices."""
    options = sorted(available)
    matches = difflib.get_close_matches(name, options, n=1)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    return f"unknown {kind} {name!r}.{hint} Available: {', '.join(options) or 'none'}"


def lookup(table: Mapping[str, T], name: str, kind: str) -> T:
    """`table[name]`, or a `UserError` that says what was asked for and what there is."""
    try:
        return table[name]
    except KeyError:
        raise UserError(unknown_name_message(name, table, kind)) from None
