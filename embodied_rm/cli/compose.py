"""Turn a command line into one frozen config dataclass, or into a one-sentence error. Hydra composes the config."""

import dataclasses
import functools
import itertools
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from embodied_rm.cli import config_errors, early_checks
from embodied_rm.config_files import command_names, config_groups, group_choices, group_folder
from embodied_rm.config_schema import build_config, mutable_schema, open_configs
from embodied_rm.errors import UserError

RUN_KEYS = ("out", "resume")  # Keys of every command. They select the run folder and are not part of the config.


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The run folder, and whether to resume the run that is in it."""

    out: Path | None = None
    resume: bool = False


def parse_overrides(words: Sequence[str], *, multirun: bool) -> list[Override]:
    """Parse the words of a command line; raise `UserError` unless each is key=value without interpolation."""
    for word in words:
        if "=" not in word or word.startswith("="):
            raise UserError(f"cannot read {word!r}: an override is written key=value")
        if "${" in word.replace("\\", ""):  # Hydra reads \{ as {
            raise UserError(f"cannot read {word!r}: interpolation is not accepted in a value")
    return [_parse_override(word, multirun) for word in words]


def name_data_path(command: str, words: Sequence[str]) -> list[str]:
    """Write a path that comes first as data=path: `score trial.mp4` is `score data=trial.mp4`."""
    if words and "=" not in words[0] and Path(words[0]).exists() and "data" in compose_untyped(command).keys():  # noqa: SIM118  `in` leaves out ???
        return [f"data={quote_text(words[0])}", *words[1:]]
    return list(words)


def _parse_override(word: str, multirun: bool) -> Override:
    key, _, value = word.partition("=")
    parser = OverridesParser.create()
    # Values that Hydra's grammar cannot parse are text, e.g. the instruction "lift it, don't drop it".
    as_text = f"{key}={quote_text(value)}"
    try:
        override = parser.parse_override(word)
        is_unrequested_sweep = override.is_sweep_override() and not multirun
        return parser.parse_override(as_text) if is_unrequested_sweep else override
    except HydraException:
        pass
    try:
        return parser.parse_override(as_text)
    except HydraException as error:
        raise UserError(f"cannot read {word!r}: {config_errors.first_line(error)}") from None


def quote_text(text: str) -> str:
    """Return a text as Hydra reads it, whatever it contains."""
    return str(QuotedString(text=text, quote=Quote.double).with_quotes())


def expand_sweep(overrides: Sequence[Override]) -> list[list[str]]:
    """Return the override list of each run: the product of all swept values, or one list without a sweep."""
    values = [
        [f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator()]
        if o.is_sweep_override()
        else [str(o.input_line)]
        for o in overrides
    ]
    return [list(run) for run in itertools.product(*values)]


def split_run_options(overrides: Sequence[Override]) -> tuple[RunOptions, list[Override]]:
    """Separate `out` and `resume` from the other overrides."""
    given = {o.key_or_group: o for o in overrides if o.key_or_group in RUN_KEYS}
    rest = [o for o in overrides if o.key_or_group not in RUN_KEYS]
    run_values = {key: override.value() for key, override in given.items()}
    out, resume = run_values.get("out"), run_values.get("resume", False)
    if not isinstance(resume, bool):
        raise UserError(f"resume must be true or false, got {resume!r}")
    if out is not None and (not isinstance(out, str | int | float) or out == ""):
        raise UserError(f"out must be a folder, got {out!r}")
    if isinstance(out, bool | int | float):  # the folder 2024_05_02
        out = str(given["out"].input_line).partition("=")[2]
    return RunOptions(out=None if out is None else Path(out), resume=resume), rest


def check_keys(command: str, overrides: Sequence[Override]) -> list[Override]:
    """Return the overrides with groups as Hydra names them; raise `UserError` for an unknown key or choice.

    Only the YAML files are read, so nothing heavy is imported.
    """
    groups = config_groups(command)
    for override in overrides:
        if override.key_or_group in groups:
            config_errors.check_group_choice(override, group_choices(group_folder(groups[str(override.key_or_group)])))
    known = _compose_groups(command, overrides, groups)
    for override in overrides:
        if override.key_or_group not in groups:
            config_errors.check_key(command, override, known)
    parser = OverridesParser.create()
    lines = [_keep_text(_qualify_group(override, groups), override, known) for override in overrides]
    return [parser.parse_override(_force_add(line, known)) for line in lines]


def check_values(command: str, overrides: Sequence[Override]) -> None:
    """Raise `UserError` for a mistake in a value that the YAML files show; call it after `check_keys`."""
    groups = config_groups(command)
    values = {o.get_key_element(): o.value() for o in overrides if o.key_or_group not in groups}
    early_checks.check_values(command, _compose_groups(command, overrides, groups), values)


def _compose_groups(command: str, overrides: Sequence[Override], groups: Mapping[str, str]) -> DictConfig:
    """Compose the config with the chosen groups and without the other overrides, untyped."""
    return compose_untyped(command, tuple(_qualify_group(o, groups) for o in overrides if o.key_or_group in groups))


def _keep_text(line: str, override: Override, known: DictConfig) -> str:
    """Quote a value that reads as another number, such as the folder 2024_05_02, of a key that holds no number."""
    key, _, text = line.partition("=")
    value = None if override.is_sweep_override() else override.value()
    if not isinstance(value, bool | int | float) or str(value) == text:
        return line
    return line if isinstance(OmegaConf.select(known, key), bool | int | float) else f"{key}={quote_text(text)}"


def _force_add(line: str, known: DictConfig) -> str:
    """Prefix an override that adds keys to an empty mapping with ++, as Hydra requires."""
    return f"++{line}" if config_errors.is_open_mapping(known, line.partition("=")[0]) else line


def _qualify_group(override: Override, groups: Mapping[str, str]) -> str:
    line = str(override.input_line)
    _, _, value = line.partition("=")
    return f"{groups[override.key_or_group]}={value}" if override.key_or_group in groups else line


@functools.cache
def compose_untyped(command: str, overrides: tuple[str, ...] = ()) -> DictConfig:
    """Compose the config from the YAML files alone, untyped and read-only, once; imports nothing heavy."""
    config = _compose(command, overrides, schema={})
    OmegaConf.set_readonly(config, True)
    return config


def compose_typed(command: str, overrides: Sequence[str], schema: type) -> Any:
    """Compose `configs/<command>.yaml` with the overrides into an instance of the dataclass `schema`."""
    try:
        config = _compose(command, overrides, mutable_schema(schema))
        values = typing.cast(dict[str, Any], OmegaConf.to_container(config, throw_on_missing=True))
    except MissingMandatoryValue as error:
        raise UserError(config_errors.missing_key_message(command, str(error.full_key))) from None
    except HydraException as error:
        raise UserError(config_errors.explain_error(error, overrides, schema)) from None
    return build_config(schema, values)


def _compose(command: str, overrides: Sequence[str], schema: type | dict[str, Any]) -> DictConfig:
    # Included configs stay untyped: the schema of the including command types the whole tree.
    for name in command_names():
        ConfigStore.instance().store(f"{name}_schema", schema if name == command else {})
    with open_configs():
        return compose(command, list(overrides))
