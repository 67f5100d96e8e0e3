"""Where the YAML files are and what can be read off them without composing anything: commands, groups, help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE_DIR = Path(__file__).resolve().parent
HERE_SUFFIX = "@_here_"
"""After a group's name in a defaults list: its keys stand among the command's own, not under the group's name."""
KEY_LINE = re.compile(r"^(?P<indent> *)(?P<key>\w+):(?: +(?P<value>[^#]*?))? *(?:# *(?P<text>.*))?$")
DEFAULT_LINE = re.compile(r"^ *- (?P<key>/?[\w/@.]+): *(?P<value>\w+) *(?:# *(?P<text>.*))?$")
INCLUDED_LINE = re.compile(r"^ *- /(?P<command>\w+)@(?P<key>\w+) *$")
CONTINUATION_LINE = re.compile(r"^ +# ?(?P<text>.*)$")


def config_dir() -> Path:
    """The folder of the YAML files: inside the installed package, or beside it in a checkout."""
    packaged = PACKAGE_DIR / "configs"
    return packaged if packaged.is_dir() else PACKAGE_DIR.parent / "configs"


def command_names() -> list[str]:
    """Every command, sorted: one primary YAML file each."""
    return sorted(path.stem for path in config_dir().glob("*.yaml"))


def join_command_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the command as one name: `bench sim` becomes `bench_sim`."""
    names = {command_display_name(name): name for name in command_names()}
    for count in (1, 2):
        if name := names.get(" ".join(words[:count])):
            return [name, *words[count:]]
    return list(words)


def command_display_name(command: str) -> str:
    """Return a command as it is typed: `bench_sim` is `bench sim`, `build_checkpoint` is `build-checkpoint`."""
    return command.replace("_", " " if command.startswith("bench_") else "-")


def config_groups(command: str) -> dict[str, str]:
    """The config groups that a command's YAML file includes: name -> what Hydra calls it in an override.

    A group that fills another key than its own (`judge@labeler`) goes by the name of that key.
    """
    group_names = [key.name for key in read_help_page(config_dir() / f"{command}.yaml").groups]
    return {
        group_cli_name(key): key.replace(HERE_SUFFIX, "@_global_")
        for key in group_names
        if group_choices(group_folder(key))
    }


def group_folder(group: str) -> str:
    """The folder with the choices of a group, however Hydra calls it in a defaults list or an override."""
    return group.split("@")[0]


def group_cli_name(group: str) -> str:
    """What a group of a defaults list is called on the command line."""
    return group_folder(group) if group.endswith(HERE_SUFFIX) else group.split("@")[-1]


def group_choices(group: str) -> list[str]:
    """The choices of a config group, empty when there is no such group."""
    return sorted(path.stem for path in config_dir().glob("*/*.yaml") if path.parent.name == group)


@dataclass(frozen=True)
class HelpKey:
    """One line of a help page."""

    name: str
    default: str
    description: str


@dataclass
class HelpPage:
    """What a YAML file says of itself: its head comment, then `key: default  # meaning` lines."""

    summary: str = ""
    details: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    groups: list[HelpKey] = field(default_factory=list)
    keys: list[HelpKey] = field(default_factory=list)


def read_help_page(path: Path) -> HelpPage:
    """Parse one of our own YAML files for its help page."""
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
