"""The YAML config files: their folder, and the commands, groups and help texts that they define."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from embodied_rm.errors import UserError

COMMANDS_GROUP = "embodied_rm.commands"
"""Entry-point group of packages that add commands: command -> module, with a YAML file of that name next to it."""
PACKAGE_DIR = Path(__file__).resolve().parent
HERE_SUFFIX = "@_here_"  # suffix of a group in a defaults list whose keys are merged into the command's own keys
KEY_LINE = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?: +(?P<value>[^#]*?))? *(?:# *(?P<text>.*))?$")
DEFAULT_LINE = re.compile(r"^ *- (?P<key>/?[\w/@.]+): *(?P<value>\w+) *(?:# *(?P<text>.*))?$")
INCLUDED_LINE = re.compile(r"^ *- /(?P<command>\w+)@(?P<key>\w+) *$")
CONTINUATION_LINE = re.compile(r"^ +# ?(?P<text>.*)$")


def config_dir() -> Path:
    """Return the folder of the YAML files: inside the installed package, or next to it in a checkout."""
    packaged = PACKAGE_DIR / "configs"
    return packaged if packaged.is_dir() else PACKAGE_DIR.parent / "configs"


@cache
def plugin_commands() -> dict[str, str]:
    """Return the commands of installed packages: name -> module. Imports no command.

    Raises:
        UserError: A built-in command has that name.
    """
    modules = {entry_point.name: entry_point.value for entry_point in entry_points(group=COMMANDS_GROUP)}
    for name, module in modules.items():
        if (config_dir() / f"{name}.yaml").exists():
            raise UserError(f"the command {name!r} of {module} has the name of a built-in command: rename it")
    return modules


def command_names() -> list[str]:
    """Return all commands, sorted: one top-level YAML file per command, and those of installed packages."""
    return sorted([*(path.stem for path in config_dir().glob("*.yaml")), *plugin_commands()])


def command_file(command: str) -> Path:
    """Return the YAML file of a command, a name of `command_names`.

    Raises:
        UserError: The command of an installed package has no module or no YAML file.
    """
    if command not in plugin_commands():
        return config_dir() / f"{command}.yaml"
    module = plugin_commands()[command]
    top, *parts = module.split(".")
    # A top-level name is located without an import, which could take seconds: help and completion come here.
    spec = find_spec(top)
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent.joinpath(*parts[:-1], f"{command}.yaml")
        if path.is_file():
            return path
    raise UserError(f"the command {command!r} needs the module {module} and {command}.yaml next to it")


def join_command_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the command as one name: `bench sim` becomes `bench_sim`."""
    names = {command_display_name(name): name for name in command_names()}
    for count in (2, 1):
        if name := names.get(" ".join(words[:count])):
            return [name, *words[count:]]
    return list(words)


def command_display_name(command: str) -> str:
    """Return a command as it is typed: `bench_sim` is `bench sim`, `build_checkpoint` is `build-checkpoint`."""
    return command.replace("_", " " if command.startswith(("adapt_", "bench_", "evaluate_", "train_")) else "-")


def config_groups(command: str) -> dict[str, str]:
    """Return the config groups of a command: name on the command line -> name in a Hydra override.

    A group that fills another key (`judge@labeler`) has the name of that key.
    """
    group_names = [key.name for key in read_help_page(command_file(command)).groups]
    return {
        group_cli_name(key): key.replace(HERE_SUFFIX, "@_global_")
        for key in group_names
        if group_choices(group_folder(key))
    }


def group_folder(group: str) -> str:
    """Return the folder of a group's choices, from its name in a defaults list or override."""
    return group.split("@")[0]


def group_cli_name(group: str) -> str:
    """Return the command-line name of a group of a defaults list."""
    return group_folder(group) if group.endswith(HERE_SUFFIX) else group.split("@")[-1]


def group_choices(group: str) -> list[str]:
    """Return the choices of a config group; empty if the group does not exist."""
    return sorted(path.stem for path in config_dir().glob("*/*.yaml") if path.parent.name == group)


@dataclass(frozen=True)
class HelpKey:
    """One line of a help page."""

    name: str
    default: str
    description: str


@dataclass
class HelpPage:
    """The help page of a YAML file: its head comment and its `key: default  # description` lines."""

    summary: str = ""
    details: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    groups: list[HelpKey] = field(default_factory=list)
    keys: list[HelpKey] = field(default_factory=list)


def read_help_page(path: Path) -> HelpPage:
    """Parse the help page of a YAML file of `configs`."""
    page = HelpPage()
    lines = path.read_text(encoding="utf-8").splitlines()
    body_start = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    header_lines = [line[1:].removeprefix(" ").rstrip() for line in lines[:body_start]]
    page.summary = header_lines[0] if header_lines else ""
    page.examples = [line.strip() for line in header_lines if line.startswith("  embodied-rm ")]
    page.details = [line for line in header_lines[1:] if not line.startswith("  embodied-rm ")]
    _read_keys(lines[body_start:], page)
    return page


def _read_keys(lines: list[str], page: HelpPage) -> None:
    key_path: list[tuple[int, str]] = []
    section: list[HelpKey] = []
    for line in lines:
        if entry := INCLUDED_LINE.match(line):
            page.keys.append(HelpKey(f"{entry['key']}.", "...", f"every key of embodied-rm {entry['command']}"))
        elif entry := DEFAULT_LINE.match(line):
            section = page.groups
            section.append(HelpKey(entry["key"].lstrip("/"), entry["value"], entry["text"] or ""))
        elif continuation := CONTINUATION_LINE.match(line):
            last = section.pop()
            section.append(HelpKey(last.name, last.default, f"{last.description} {continuation['text']}".strip()))
        elif (entry := KEY_LINE.match(line)) and entry["key"] != "defaults":
            indent = len(entry["indent"])
            key_path = [*((depth, key) for depth, key in key_path if depth < indent), (indent, entry["key"])]
            section = page.keys
            section.append(HelpKey(".".join(key for _, key in key_path), entry["value"] or "", entry["text"] or ""))
