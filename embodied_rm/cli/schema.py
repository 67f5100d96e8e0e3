"""Between frozen dataclasses and OmegaConf: a copy of the schema that can be composed, and the way back."""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, Literal

from embodied_rm.errors import UserError, choices


@functools.cache
def composable(schema: type) -> type:
    """A dataclass with the same fields that OmegaConf can hold and overrides can change.

    OmegaConf refuses to write into frozen dataclasses while it composes, and knows no `Literal`: those become texts,
    which `build` checks on the way back.
    """
    hints = typing.get_type_hints(schema)
    columns = [(field.name, _kind(hints[field.name]), _default(field)) for field in dataclasses.fields(schema)]
    return dataclasses.make_dataclass(schema.__name__, columns, kw_only=True)


def _kind(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return composable(typing.cast(type, hint))
    if typing.get_origin(hint) is dict:
        key, value = typing.get_args(hint)
        return dict[key, _kind(value)]  # type: ignore[valid-type, misc]
    return str if typing.get_origin(hint) is Literal else hint


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING and not dataclasses.is_dataclass(field.default):
        return dataclasses.field(default=field.default)
    if field.default is not dataclasses.MISSING:
        return dataclasses.field(default_factory=lambda: _copy(field.default))
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=lambda: _copy(typing.cast(Any, field).default_factory()))
    return dataclasses.field()


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    values = {field.name: _copy(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return composable(type(value))(**values)


def build(schema: type, values: dict[str, Any], prefix: str = "") -> Any:
    """An instance of the dataclass from plain containers: nested dataclasses are built, lists become tuples.

    Raises `UserError` for a choice that does not exist and for a list of the wrong length, naming the key.
    """
    hints = typing.get_type_hints(schema)
    return schema(**{key: _convert(hints[key], value, f"{prefix}{key}") for key, value in values.items()})


def _convert(hint: Any, value: Any, key: str) -> Any:
    if isinstance(value, dict) and dataclasses.is_dataclass(hint):
        return build(typing.cast(type, hint), value, f"{key}.")
    if isinstance(value, dict):
        return {name: _convert(typing.get_args(hint)[1], item, f"{key}.{name}") for name, item in value.items()}
    if typing.get_origin(hint) is Literal and value not in typing.get_args(hint):
        raise UserError(choices(str(value), typing.get_args(hint), f"value of {key}"))
    if isinstance(value, list):
        parts = typing.get_args(hint)
        if Ellipsis not in parts and typing.get_origin(hint) is tuple and len(parts) != len(value):
            raise UserError(f"{key} must have {len(parts)} entries, got {value}")
        return tuple(value)
    return value
