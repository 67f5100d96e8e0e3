"""The front page is true: its commands exist and compose, and its tree is the tree."""

import re
import shlex
from pathlib import Path

import pytest

from embodied_rm.cli import compose
from embodied_rm.cli.main import load_command
from embodied_rm.config_files import command_names, config_dir, join_command_words, read_help_page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")))
}
UNLISTED = {
    "__main__.py",
    "__init__.py",
    "__pycache__",
    "LICENSE",
    "Makefile",
    "pyproject.toml",
    "constraints.txt",
    "runs",
    "build",
    "dist",
}


def fenced(text: str, language: str) -> list[str]:
    """The lines of all code blocks of one language, comments removed."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line]


COMMANDS = [line for text in PAGES.values() for line in fenced(text, "bash")]
EXAMPLES = [line for name in command_names() for line in read_help_page(config_dir() / f"{name}.yaml").examples]


def check_command_line(line: str) -> None:
    """The line names a command of ours whose keys and values are right."""
    name, *words = join_command_words(shlex.split(line)[1:])
    assert name in command_names(), line
    flags = [word for word in words if word.startswith("-")]
    assert set(flags) <= {"-m", "--help"}, line
    words = [word for word in words if word not in flags]
    overrides = compose.parse_overrides(words, multirun="-m" in flags)
    _, overrides = compose.split_run_options(overrides)
    for run in compose.expand_sweep(compose.check_keys(name, overrides)):
        compose.compose_typed(name, run, load_command(name).schema)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("embodied-rm")] + EXAMPLES)
def test_every_command_line_that_is_shown_is_right(line: str) -> None:
    check_command_line(line)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("make ")])
def test_every_make_target_that_is_shown_exists(line: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert line.split()[1] in targets


def test_every_shown_command_was_recognised() -> None:
    known = ("embodied-rm", "make ", "eval ", ".venv/bin/python benchmarks/", "git ")
    assert [line for line in COMMANDS if not line.startswith(known)] == []


def test_inline_make_targets_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for text in PAGES.values():
        assert set(re.findall(r"`make ([a-z-]+)", text)) <= set(targets)


def tree() -> dict[Path, str]:
    """Path -> comment, for every line of the README's tree."""
    found: dict[Path, str] = {}
    parent = ROOT
    for line in fenced_tree().splitlines():
        entry, _, comment = line.strip().partition(" ")
        path = (parent if line.startswith("  ") else ROOT) / entry
        parent = parent if line.startswith("  ") else path
        found[path] = comment.strip()
    return found


def fenced_tree() -> str:
    section = PAGES["README.md"].split("## The tree")[1]
    return section.split("```")[1].strip("\n")


def test_everything_in_the_tree_exists_and_has_a_comment() -> None:
    for path, comment in tree().items():
        assert path.exists(), path
        assert comment, path


def test_everything_that_exists_is_in_the_tree() -> None:
    listed = set(tree())
    shown = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    shown += list((ROOT / "embodied_rm").iterdir())
    shown += [path for path in (ROOT / "sim").iterdir() if path.is_dir()]
    missing = [p for p in shown if p not in listed and p.name not in UNLISTED and not p.name.endswith(".egg-info")]
    assert missing == []
