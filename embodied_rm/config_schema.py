"""Convert between frozen config dataclasses and what OmegaConf composes."""

import dataclasses
import functools
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from embodied_rm.config_files import COMMANDS_GROUP, command_file, config_dir, plugin_commands
from embodied_rm.errors import UserError, unknown_name_message


class CommandSearchPath(SearchPathPlugin):
    """Lets Hydra find the YAML files of commands that installed packages add."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append the folder of every such file."""
        for name in plugin_commands():
            search_path.append(COMMANDS_GROUP, f"file://{command_file(name).parent}")


@contextmanager
def open_configs() -> Iterator[None]:
    """Let Hydra compose from `configs` and from the folders of plugins."""
    Plugins.instance().register(CommandSearchPath)
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        yield


@functools.cache
def mutable_schema(schema: type) -> type:
    """Return a mutable dataclass with the same fields, which OmegaConf can compose.

    OmegaConf cannot write into frozen dataclasses and does not support `Literal`. A `Literal` becomes `str`;
    `build_config` checks its value.
    """
    hints = typing.get_type_hints(schema)
    field_specs = [
        (field.name, _mutable_type(hints[field.name]), _mutable_default(field)) for field in dataclasses.fields(schema)
    ]
    return dataclasses.make_dataclass(schema.__name__, field_specs, kw_only=True)


def _mutable_type(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return mutable_schema(typing.cast(type, hint))
    if typing.get_origin(hint) is dict:
        key, value = typing.get_args(hint)
        return dict[key, _mutable_type(value)]  # type: ignore[valid-type, misc]
    return str if typing.get_origin(hint) is Literal else hint


def _mutable_default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING and not dataclasses.is_dataclass(field.default):
        return dataclasses.field(default=field.default)
    if field.default is not dataclasses.MISSING:
        return dataclasses.field(default_factory=lambda: _mutable_copy(field.default))
    if field.default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=lambda: _mutable_copy(typing.cast(Any, field).default_factory()))
    return dataclasses.field()


def _mutable_copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _mutable_copy(item) for key, item in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    values = {field.name: _mutable_copy(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return mutable_schema(type(value))(**values)


def build_config(schema: type, values: dict[str, Any], prefix: str = "") -> Any:
    """Build a frozen dataclass from plain containers; nested dataclasses are built too, and lists become tuples.

    `prefix` is the dotted key of the dataclass itself. Raises `UserError` if a `Literal` value does not exist or a list
    has the wrong length.
    """
    hints = typing.get_type_hints(schema)
    return schema(**{key: _convert(hints[key], value, f"{prefix}{key}") for key, value in values.items()})


def _convert(hint: Any, value: Any, key: str) -> Any:
    if isinstance(value, dict) and dataclasses.is_dataclass(hint):
        return build_config(typing.cast(type, hint), value, f"{key}.")
    if isinstance(value, dict):
        return {name: _convert(typing.get_args(hint)[1], item, f"{key}.{name}") for name, item in value.items()}
    if typing.get_origin(hint) is Literal and value not in typing.get_args(hint):
        raise UserError(unknown_name_message(str(value), typing.get_args(hint), f"value of {key}"))
    if isinstance(value, list):
        item_types = typing.get_args(hint)
        if Ellipsis not in item_types and typing.get_origin(hint) is tuple and len(item_types) != len(value):
            raise UserError(f"{key} must have {len(item_types)} entries, got {value}")
        return tuple(value)
    return value


def load_group_choice(group: str, choice: str, schema: type) -> Any:
    """Return one file of a config group, `configs/<group>/<choice>.yaml`, as an instance of a dataclass."""
    with open_configs():
        values = OmegaConf.to_container(compose(f"{group}/{choice}")[group])
    return build_config(schema, typing.cast(dict[str, Any], values))
