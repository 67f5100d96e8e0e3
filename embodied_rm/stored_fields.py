"""Check the types of fields that come from a file: JSON may hold any value in the place of any other."""

from __future__ import annotations

import dataclasses
import math
import typing
from types import NoneType, UnionType
from typing import Any, Literal, Union

from embodied_rm.errors import UserError


def check_fields(value: Any, prefix: str = "") -> None:
    """Raise `UserError` unless the fields of a dataclass or a named tuple, and those in them, have their types."""
    for name, hint in typing.get_type_hints(type(value)).items():
        field = getattr(value, name)
        if not has_type(field, hint):
            kind = getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint).replace("typing.", "")
            raise UserError(f"{prefix}{name} must be {kind}, got {field!r}")
        if has_fields(field):
            check_fields(field, f"{prefix}{name}.")


def has_fields(value: Any) -> bool:
    """Return whether a value is a dataclass or a named tuple."""
    return dataclasses.is_dataclass(value) or hasattr(value, "_fields")


def has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has the type of an annotation; an integer is a float, a Boolean is no number."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, UnionType):
        return any(has_type(value, arg) for arg in args)
    if origin is Literal:
        return isinstance(value, str) and value in args
    if origin is tuple:
        return isinstance(value, tuple) and has_types(value, args)
    if hint is float:
        return type(value) in (int, float) and abs(value) < math.inf
    if hint is int or hint is bool:
        return type(value) is hint
    return hint is Any or isinstance(value, NoneType if hint is None else origin or hint)


def has_types(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    """Return whether the entries of a tuple have the types of its annotation."""
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(has_type(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(has_type, values, hints))


def check_share(name: str, value: float | None) -> None:
    """Raise `UserError` for a number outside [0, 1]."""
    if value is not None and not 0 <= value <= 1:
        raise UserError(f"{name} must be in [0, 1], got {value}")
