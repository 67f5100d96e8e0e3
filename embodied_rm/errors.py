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


class UnmetError(Exception):
    """What was asked to hold does not. The command line prints the message and exits with code 3."""


def choices(name: str, available: Iterable[str], what: str) -> str:
    """The sentence for an unknown name: the thing, the value, the nearest name, all choices."""
    names = sorted(available)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {name!r}.{hint} Available: {', '.join(names) or 'none'}"


def lookup(table: Mapping[str, T], name: str, what: str) -> T:
    """`table[name]`, or a `UserError` that says what was asked for and what there is."""
    try:
        return table[name]
    except KeyError:
        raise UserError(choices(name, table, what)) from None
