"""The front page and the documentation are true: their commands compose, and their targets exist."""

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
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
KNOWN_PROGRAMS = (
    "embodied-rm",
    "make ",
    "eval ",
    "pip install",
    "python benchmarks/",
    ".venv/bin/",
    "git ",
    "cd ",
    "torchrun ",
    "tensorboard ",
    "apt-get ",
    "rerun ",
)


def fenced_lines(text: str, language: str) -> list[str]:
    """The lines of all code blocks of one language, comments removed."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


COMMANDS = [line for text in PAGES.values() for line in fenced_lines(text, "bash")]
EXAMPLES = [line for name in command_names() for line in read_help_page(config_dir() / f"{name}.yaml").examples]


def check_command_line(line: str) -> None:
    """The line names a command of ours whose keys and values are right."""
    name, *words = join_command_words(shlex.split(line)[1:])
    if name.startswith("--"):
        return
    assert name in command_names(), line
    flags = [word for word in words if word.startswith("-")]
    assert set(flags) <= {"-m", "--help"}, line
    words = [word for word in words if word not in flags]
    overrides = compose.parse_overrides(words, multirun="-m" in flags)
    _, overrides = compose.split_run_options(overrides)
    for run in compose.expand_sweep(compose.check_keys(name, overrides)):
        compose.compose_typed(name, run, load_command(name).schema)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("embodied-rm")] + EXAMPLES)
def test_every_command_line_composes(line: str) -> None:
    check_command_line(line)


def test_every_make_target_exists() -> None:
    in_blocks = {line.split()[1] for line in COMMANDS if line.startswith("make ")}
    inline = {target for text in PAGES.values() for target in re.findall(r"`make ([a-z-]+)", text)}
    assert in_blocks | inline <= TARGETS


def test_every_line_of_a_shell_block_starts_with_a_known_program() -> None:
    assert [line for line in COMMANDS if not line.startswith(KNOWN_PROGRAMS)] == []


def test_no_command_reads_outside_the_clone() -> None:
    assert [line for line in (*COMMANDS, *EXAMPLES) if "../" in line or "/home/" in line] == []


def test_the_readme_is_one_page() -> None:
    """A first screen with installation and Python, one number per cell, at most 900 words."""
    readme = PAGES["README.md"]
    assert len(readme.split()) <= 900
    headings = re.findall(r"^## (.*)$", readme, flags=re.MULTILINE)
    assert headings[:2] == ["Install", "Quickstart"] and {"Results", "Limits"} < set(headings)
    rows = readme[readme.index("| result |") :].split("\n\n")[0].splitlines()[2:]
    assert 6 <= len(rows) <= 8
    for row in rows:
        value = row.split("|")[2].strip()
        assert re.fullmatch(r"[\d.,]+( of \d+)?", value), value
    for link in re.findall(r"\]\(([^)]+)\)", readme):
        assert (ROOT / link).exists(), link


def test_every_package_is_described_in_the_architecture() -> None:
    page = PAGES["docs/architecture.md"]
    for path in (ROOT / "embodied_rm").iterdir():
        if path.is_dir() and (path / "__init__.py").exists():
            assert path.name in page, path.name
