"""Every config composes, and the defaults of YAML files and dataclasses agree."""

import dataclasses
from functools import cache
from itertools import zip_longest
from typing import Any, get_origin

import pytest
from omegaconf import OmegaConf

from embodied_rm.cli import compose
from embodied_rm.cli.config_errors import field_type, leaf_keys
from embodied_rm.cli.main import load_command
from embodied_rm.config_files import KEY_LINE, command_names, config_dir, config_groups, group_choices, group_folder

GROUPS = sorted({path.parent.name for path in config_dir().glob("*/*.yaml")})


def stand_in(hint: object) -> str:
    """Return a value for a required key of this type."""
    return "1" if hint in (int, float) else "[some,where]" if get_origin(hint) is tuple else "somewhere"


@cache
def required(command: str) -> list[str]:
    """Return overrides for the keys without a default."""
    schema, missing = load_command(command).schema, OmegaConf.missing_keys(compose.compose_untyped(command))
    return [f"{name}={stand_in(field_type(schema, name))}" for name in sorted(missing)]


@cache
def composed(command: str) -> Any:
    """The defaults of a command, with stand-ins for what is required."""
    return compose.compose_typed(command, required(command), load_command(command).schema)


@pytest.mark.parametrize("command", command_names())
def test_every_command_composes_into_its_dataclass(command: str) -> None:
    assert isinstance(composed(command), load_command(command).schema)


@pytest.mark.parametrize("command", command_names())
def test_every_key_of_the_dataclass_is_in_the_yaml(command: str) -> None:
    assert set(leaf_keys(OmegaConf.create(dataclasses.asdict(composed(command))))) == set(
        leaf_keys(compose.compose_untyped(command))
    )


@pytest.mark.parametrize("command", command_names())
def test_no_training_ends_by_the_clock(command: str) -> None:
    """A result must not depend on how fast the machine is, unless a user asks for a budget of time."""
    config = compose.compose_untyped(command)
    budgets = [name for name in leaf_keys(config) if name.endswith("max_seconds")]
    assert all(OmegaConf.select(config, name) is None for name in budgets)
    assert budgets or command not in ("train", "adapt", "demo")


def defaults_of(schema: type) -> dict[str, object]:
    """Return dotted name -> default of the dataclass, for every field with a default."""
    found: dict[str, object] = {}
    for field in dataclasses.fields(schema):
        if field.default_factory is not dataclasses.MISSING:
            found |= {f"{field.name}.{name}": value for name, value in vars(field.default_factory()).items()}
        elif field.default is not dataclasses.MISSING:
            found[field.name] = field.default
    return found


def value_of(config: object, name: str) -> object:
    for part in name.split("."):
        config = getattr(config, part)
    return config


@pytest.mark.parametrize("command", [name for name in command_names() if name not in ("demo", "compare")])
def test_the_yaml_and_the_dataclass_agree_on_defaults(command: str) -> None:
    """demo and compare are excluded: they override defaults of the commands that they run."""
    stated = defaults_of(load_command(command).schema)
    assert {name: value_of(composed(command), name) for name in stated} == stated


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_is_used(group: str) -> None:
    folders = {group_folder(key) for command in command_names() for key in config_groups(command).values()}
    assert group in folders, f"configs/{group} is included by no command"


@pytest.mark.parametrize("command", [name for name in command_names() if config_groups(name)])
def test_every_choice_of_every_group_composes(command: str) -> None:
    """The groups of a command are independent: one composition chooses in all of them."""
    choices = {name: group_choices(group_folder(key)) for name, key in config_groups(command).items()}
    for row in zip_longest(*choices.values()):
        words = [f"{group}={choice}" for group, choice in zip(choices, row, strict=True) if choice is not None]
        chosen = compose.check_keys(command, compose.parse_overrides(words, multirun=False))
        overrides = [*compose.expand_sweep(chosen)[0], *required(command)]
        compose.compose_typed(command, overrides, load_command(command).schema)


@pytest.mark.parametrize("path", sorted(config_dir().glob("**/*.yaml")), ids=lambda path: path.stem)
def test_yaml_files_have_one_key_per_line_and_no_code(path) -> None:
    text = path.read_text()
    assert "${" not in text and "_target_" not in text and "!!" not in text
    body = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "- "))]
    assert [line for line in body if not KEY_LINE.match(line)] == []
