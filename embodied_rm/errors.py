"""Errors caused by the user: each message names the object, shows the value and lists the choices."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
MAX_MESSAGE_CHARS = 4000  # a message shows values of files, which may have any length


class UserError(ValueError):
    """Invalid user input. The command line prints the message and exits with code 2."""

    def __init__(self, message: str) -> None:
        """Keep the start and the end of a message that is longer than `MAX_MESSAGE_CHARS`."""
        super().__init__(shorten_message(message))


class DataError(UserError):
    """A dataset or video that cannot be used: the message names the file and the issue."""


class CheckpointError(UserError):
    """A checkpoint that is damaged or does not fit: the message names the file and the issue."""


class CheckFailedError(Exception):
    """A requested check failed. The command line prints the message and exits with code 3."""


def shorten_message(message: str) -> str:
    """Return a message, or the start and the end of one that is longer than `MAX_MESSAGE_CHARS`."""
    if len(message) <= MAX_MESSAGE_CHARS:
        return message
    half = MAX_MESSAGE_CHARS // 2
    return f"{message[:half]} ... {message[-half:]}"


def check_minimum(config: object, minimum: float, *names: str, prefix: str = "") -> None:
    """Raise `UserError` unless each of these fields is at least `minimum`; `prefix` is that of their config keys."""
    for name in names:
        if getattr(config, name) < minimum:
            raise UserError(f"{prefix}{name} must be >= {minimum}, got {getattr(config, name)}")


def unknown_name_message(name: str, available: Iterable[str], kind: str) -> str:
    """Return the error message for an unknown name; `kind` is a noun for the named object, e.g. "view"."""
    options = sorted(available)
    matches = difflib.get_close_matches(name, options, n=1)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    return f"unknown {kind} {name!r}.{hint} Available: {', '.join(options) or 'none'}"


def lookup(table: Mapping[str, T], name: str, kind: str) -> T:
    """Return `table[name]`; raise `UserError` for an unknown name. `kind` is a noun, e.g. "rule"."""
    try:
        return table[name]
    except KeyError:
        raise UserError(unknown_name_message(name, table, kind)) from None
