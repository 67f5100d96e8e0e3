"""Config errors as one sentence that names the key, the value, the choices and the nearest name."""

import dataclasses
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from embodied_rm.config_files import command_display_name
from embodied_rm.errors import UserError, unknown_name_message

TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
TYPE_NAMES |= {Path: "a path", NoneType: "null"}


def first_line(error: BaseException) -> str:
    """Return the first line of an error message."""
    return str(error).splitlines()[0]


def missing_key_message(command: str, key: str) -> str:
    """Return the message for a required key without a value."""
    return f"{key} is required: embodied-rm {command_display_name(command)} {key}=...; see --help"


def check_group_choice(override: Override, available: Sequence[str]) -> None:
    """Raise `UserError` for a group choice that does not exist."""
    if str(override.value()) not in available:
        raise UserError(unknown_name_message(str(override.value()), available, str(override.key_or_group)))


def check_key(command: str, override: Override, known: DictConfig) -> None:
    """Raise `UserError` for a key that the composed config does not have, also inside a value such as {steps:3}.

    A mapping that is empty by default accepts any key.
    """
    key = override.get_key_element()
    names = list(leaf_keys(known))
    sections = {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 1)}
    value = override.value()
    nested = value if isinstance(value, dict) and not is_open_mapping(known, key) else {}
    nested_keys = [f"{key}.{name}" for name in leaf_keys(OmegaConf.create(nested))]
    kind = f"key of embodied-rm {command_display_name(command)}"
    for name in (key, *nested_keys):
        if name not in names and name not in sections:
            raise UserError(unknown_name_message(name, [*names, "out", "resume"], kind))


def is_open_mapping(config: DictConfig, key: str) -> bool:
    """Whether a dotted key is a mapping that is empty by default, and so accepts any key."""
    return bool(OmegaConf.select(config, key) == {})


def leaf_keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yield the dotted name of every value in a config."""
    for key in config:
        child = config._get_node(key)
        name = f"{prefix}{key!s}"
        if isinstance(child, DictConfig) and len(child):
            yield from leaf_keys(child, f"{name}.")
        else:
            yield name


def explain_error(error: Exception, overrides: Sequence[str], schema: type) -> str:
    """Return the error message for a failed composition, in terms of the overrides."""
    cause = error.__cause__
    if isinstance(cause, OmegaConfBaseException) and cause.full_key:
        key = cause.full_key.split("[")[0]
        lines = [line.removeprefix("++") for line in overrides]
        given_value = next((line.partition("=")[2].strip('"') for line in lines if line.startswith(f"{key}=")), None)
        if given_value is not None:
            sweep_hint = "; for one run each, add -m" if "," in given_value else ""
            return f"{key} must be {describe_type(field_type(schema, key))}, got {given_value}{sweep_hint}"
    return first_line(error)


def field_type(schema: Any, key: str) -> Any:
    """Return the annotation of a dotted key in nested dataclasses."""
    first_key, _, rest = key.partition(".")
    hint = typing.get_args(schema)[1] if typing.get_origin(schema) is dict else typing.get_type_hints(schema)[first_key]
    return field_type(hint, rest) if rest else hint


def describe_type(hint: Any) -> str:
    """Describe an annotation in words: `int | None` is "a whole number or null"."""
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if hint in TYPE_NAMES:
        return TYPE_NAMES[hint]
    if dataclasses.is_dataclass(hint):
        return "a group of keys (" + ", ".join(field.name for field in dataclasses.fields(hint)) + ")"
    parts = [part for part in typing.get_args(hint) if part is not Ellipsis]
    if typing.get_origin(hint) in (list, tuple):
        return f"a list like [a,b] (each {describe_type(parts[0])})"
    if typing.get_origin(hint) is dict:
        return "a mapping like {a:1}"
    return " or ".join(describe_type(part) for part in parts) or str(hint)
