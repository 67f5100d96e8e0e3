"""Help pages, generated from the YAML files: summary, keys with defaults and descriptions, examples."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from embodied_rm.config_files import (
    HERE_SUFFIX,
    HelpKey,
    HelpPage,
    command_display_name,
    command_file,
    command_names,
    config_dir,
    group_choices,
    group_cli_name,
    group_folder,
    read_help_page,
)

RUN_KEY_HELP = (
    HelpKey("out", "runs/<command>/<time>", "the run folder; it must not hold a run already"),
    HelpKey("resume", "false", "true: continue the interrupted run in out"),
)
FOOTER = """Write key=value after the command. key=1,2 with -m starts one run for each value (a sweep).
Tab completion: eval "$(embodied-rm --shell-completion install=bash)"   (or zsh, fish)"""


def show_overview(console: Console) -> None:
    """Print all commands, one line per command."""
    title = "embodied-rm: subtask-aware reward models for robots, learned from video and instructions."
    _print_line(console, title, style="bold")
    _print_line(console, "\nUsage: embodied-rm COMMAND [key=value ...] [-m] [--help]\n")
    rows = [(command_display_name(name), read_help_page(command_file(name)).summary) for name in command_names()]
    _print_table(console, "Commands", rows)
    _print_line(console, "embodied-rm COMMAND --help describes a command and its keys.\n" + FOOTER)


def show_command(console: Console, name: str) -> None:
    """Print the help page of one command."""
    page = read_help_page(command_file(name))
    _print_line(console, f"embodied-rm {command_display_name(name)}: {page.summary}", style="bold")
    _print_line(console, "\n".join(page.details).rstrip() + "\n")
    groups = [key for key in page.groups if group_choices(group_folder(key.name))]
    keys = [*map(with_inherited_description, page.keys), *(inner for key in groups for inner in _group_keys(key))]
    if keys:
        _print_table(console, "Keys", _key_rows(keys))
    if groups:
        _print_table(console, "Groups: many keys at once", _group_rows(groups))
    _print_table(console, "Every command", _key_rows(RUN_KEY_HELP))
    _print_table(console, "Examples", [(example,) for example in page.examples])
    _print_line(console, FOOTER)


def with_inherited_description(key: HelpKey) -> HelpKey:
    """Return the key with the description from the included command, if it has none of its own."""
    command, _, rest = key.name.partition(".")
    if key.description or command not in command_names():
        return key
    descriptions = {inner.name: inner.description for inner in read_help_page(command_file(command)).keys}
    return HelpKey(key.name, key.default, descriptions.get(rest, ""))


def _group_keys(key: HelpKey) -> list[HelpKey]:
    page = _choice_page(key, key.default)
    prefix = "" if key.name.endswith(HERE_SUFFIX) else f"{key.name.split('@')[-1]}."
    return [HelpKey(f"{prefix}{inner.name}", inner.default, inner.description) for inner in page.keys]


def _group_rows(groups: Sequence[HelpKey]) -> list[tuple[str, ...]]:
    """Return each choice of each group with the summary of its file."""
    choices = [(key, choice) for key in groups for choice in group_choices(group_folder(key.name))]
    return [(f"{group_cli_name(key.name)}={choice}", _choice_page(key, choice).summary) for key, choice in choices]


def _choice_page(key: HelpKey, choice: str) -> HelpPage:
    return read_help_page(config_dir() / group_folder(key.name) / f"{choice}.yaml")


def _key_rows(keys: Sequence[HelpKey]) -> list[tuple[str, ...]]:
    documented = [key for key in keys if key.default or key.description]
    return [(key.name, "(required)" if key.default == "???" else key.default, key.description) for key in documented]


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, ...]]) -> None:
    _print_line(console, f"{title}:", style="bold")
    grid = Table(box=None, show_header=False, padding=(0, 1))
    for column in range(len(rows[0])):
        last = column == len(rows[0]) - 1
        grid.add_column(style="cyan" if column == 0 and not last else None, no_wrap=not last, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in (" " + row[0], *row[1:])))
    console.print(grid)
    _print_line(console, "")


def _print_line(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
