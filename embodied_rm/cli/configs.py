"""Where the YAML files are and what can be read off them without composing anything: commands, groups, help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
HERE = "@_here_"
"""After a group's name in a defaults list: its keys stand among the command's own, not under the group's name."""
KEY_LINE = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?: +(?P<value>[^#]*?))? *(?:# *(?P<text>.*))?$")
DEFAULT_LINE = re.compile(r"^ *- (?P<key>/?[\w/@.]+): *(?P<value>\w+) *(?:# *(?P<text>.*))?$")
INCLUDED_LINE = re.compile(r"^ *- /(?P<command>\w+)@(?P<key>\w+) *$")
MORE_TEXT = re.compile(r"^ +# ?(?P<text>.*)$")


def config_dir() -> Path:
    """The folder of the YAML files: inside the installed package, or beside it in a checkout."""
    inside = PACKAGE / "configs"
    return inside if inside.is_dir() else PACKAGE.parent / "configs"


def command_names() -> list[str]:
    """Every command, sorted: one primary YAML file each."""
    return sorted(path.stem for path in config_dir().glob("*.yaml"))


def joined(words: Sequence[str]) -> list[str]:
    """A command line whose command, if it is one of two words, is one: `bench sim` is `bench_sim`."""
    command = "_".join(words[:2])
    return [command, *words[2:]] if command in command_names() else list(words)


def spoken(command: str) -> str:
    """A command as it is typed: `bench_sim` is `bench sim`."""
    return command.replace("_", " ")


def groups_of(command: str) -> dict[str, str]:
    """The config groups that a command's YAML file includes: name -> what Hydra calls it in an override.

    A group that fills another key than its own (`judge@labeller`) goes by the name of that key.
    """
    included = [key.name for key in read_page(config_dir() / f"{command}.yaml").groups]
    return {said(key): key.replace(HERE, "@_global_") for key in included if group_choices(folder_of(key))}


def folder_of(group: str) -> str:
    """The folder with the choices of a group, however Hydra calls it in a defaults list or an override."""
    return group.split("@")[0]


def said(group: str) -> str:
    """What a group of a defaults list is called on the command line."""
    return folder_of(group) if group.endswith(HERE) else group.split("@")[-1]


def group_choices(group: str) -> list[str]:
    """The choices of a config group, empty when there is no such group."""
    return sorted(path.stem for path in config_dir().glob("*/*.yaml") if path.parent.name == group)


@dataclass(frozen=True)
class Key:
    """One line of a help page."""

    name: str
    default: str
    meaning: str


@dataclass
class Page:
    """What a YAML file says of itself: its head comment, then `key: default  # meaning` lines."""

    summary: str = ""
    about: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    groups: list[Key] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)


def read_page(path: Path) -> Page:
    """Parse one of our own YAML files for its help page."""
    page = Page()
    lines = path.read_text(encoding="utf-8").splitlines()
    body = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    head = [line[1:].removeprefix(" ").rstrip() for line in lines[:body]]
    page.summary = head[0] if head else ""
    page.examples = [line.strip() for line in head if line.startswith("  embodied-rm ")]
    page.about = [line for line in head[1:] if not line.startswith("  embodied-rm ")]
    _read_keys(lines[body:], page)
    return page


def _read_keys(lines: list[str], page: Page) -> None:
    path: list[tuple[int, str]] = []
    latest: list[Key] = []
    for line in lines:
        if entry := INCLUDED_LINE.match(line):
            page.keys.append(Key(f"{entry['key']}.", "...", f"every key of embodied-rm {entry['command']}"))
        elif entry := DEFAULT_LINE.match(line):
            latest = page.groups
            latest.append(Key(entry["key"].lstrip("/"), entry["value"], entry["text"] or ""))
        elif more := MORE_TEXT.match(line):
            last = latest.pop()
            latest.append(Key(last.name, last.default, f"{last.meaning} {more['text']}".strip()))
        elif (entry := KEY_LINE.match(line)) and entry["key"] != "defaults":
            indent = len(entry["indent"])
            path = [*((depth, key) for depth, key in path if depth < indent), (indent, entry["key"])]
            latest = page.keys
            latest.append(Key(".".join(key for _, key in path), entry["value"] or "", entry["text"] or ""))
