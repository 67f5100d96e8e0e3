"""Help that teaches, read from the YAML files: what a command does, every key with default and meaning, examples."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from embodied_rm.cli.configs import (
    HERE,
    Key,
    command_names,
    config_dir,
    folder_of,
    group_choices,
    read_page,
    said,
    spoken,
)

RUN_KEYS = (
    Key("out", "runs/<command>/<time>", "the run folder; a folder that already holds a run is refused"),
    Key("resume", "false", "true: continue the interrupted run in out"),
)
FOOTER = """Write key=value after the command. key=1,2 with -m starts one run for each value (a sweep).
Tab completion: eval "$(embodied-rm --shell-completion install=bash)"   (or zsh, fish)"""


def show_overview(console: Console) -> None:
    """Every command in one line each."""
    _line(console, "embodied-rm: step-aware reward models for robots, learned from video and a sentence.", style="bold")
    _line(console, "\nUsage: embodied-rm COMMAND [key=value ...] [-m] [--help]\n")
    _grid(
        console,
        "Commands",
        [(spoken(name), read_page(config_dir() / f"{name}.yaml").summary) for name in command_names()],
    )
    _line(console, "embodied-rm COMMAND --help explains a command and each of its keys.\n" + FOOTER)


def show_command(console: Console, name: str) -> None:
    """The help page of one command."""
    page = read_page(config_dir() / f"{name}.yaml")
    _line(console, f"embodied-rm {spoken(name)}: {page.summary}", style="bold")
    _line(console, "\n".join(page.about).rstrip() + "\n")
    groups = [key for key in page.groups if group_choices(folder_of(key.name))]
    keys = [*map(explained, page.keys), *(inner for key in groups for inner in _inner(key))]
    if keys:
        _grid(console, "Keys", _rows(keys))
    if groups:
        _grid(console, "Groups: many keys at once", _group_rows(groups))
    _grid(console, "Every command", _rows(RUN_KEYS))
    _grid(console, "Examples", [(example,) for example in page.examples])
    _line(console, FOOTER)


def explained(key: Key) -> Key:
    """A key of an included command means what it means there, unless it says something else."""
    command, _, rest = key.name.partition(".")
    if key.meaning or command not in command_names():
        return key
    there = {inner.name: inner.meaning for inner in read_page(config_dir() / f"{command}.yaml").keys}
    return Key(key.name, key.default, there.get(rest, ""))


def _inner(key: Key) -> list[Key]:
    page = read_page(config_dir() / folder_of(key.name) / f"{key.default}.yaml")
    prefix = "" if key.name.endswith(HERE) else f"{key.name.split('@')[-1]}."
    return [Key(f"{prefix}{inner.name}", inner.default, inner.meaning) for inner in page.keys]


def _group_rows(groups: Sequence[Key]) -> list[tuple[str, ...]]:
    """Each choice of each group with what its file says of it."""
    return [
        (f"{said(key.name)}={choice}", read_page(config_dir() / folder_of(key.name) / f"{choice}.yaml").summary)
        for key in groups
        for choice in group_choices(folder_of(key.name))
    ]


def _rows(keys: Sequence[Key]) -> list[tuple[str, ...]]:
    told = [key for key in keys if key.default or key.meaning]
    return [(key.name, "(required)" if key.default == "???" else key.default, key.meaning) for key in told]


def _grid(console: Console, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    _line(console, f"{title}:", style="bold")
    grid = Table(box=None, show_header=False, padding=(0, 1))
    for column in range(len(rows[0])):
        last = column == len(rows[0]) - 1
        grid.add_column(style="cyan" if column == 0 and not last else None, no_wrap=not last, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in (" " + row[0], *row[1:])))
    console.print(grid)
    _line(console, "")


def _line(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
