"""A configuration dataclass from the keyword arguments of a caller."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from embodied_rm.errors import UserError, unknown_name_message

ConfigT = TypeVar("ConfigT")


def build_config(config_class: type[ConfigT], keys: Mapping[str, Any]) -> ConfigT:
    """Make a configuration from its keys, as a command makes it from `key=value`; `UserError` for an unknown key.

    A key of a nested configuration may be given with a mapping, `{"gamma": 0.99}`.
    """
    hints = get_type_hints(config_class)
    known = {field.name: hints[field.name] for field in fields(config_class)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in keys.items():
        if key not in known:
            raise UserError(unknown_name_message(key, known, f"key of {config_class.__name__}"))
        nested = is_dataclass(known[key]) and isinstance(value, Mapping)
        values[key] = build_config(known[key], value) if nested else value
    return config_class(**values)
