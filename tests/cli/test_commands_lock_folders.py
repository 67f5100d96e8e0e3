"""Two processes on one folder: whatever the command, one works and the other is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_origin

import pytest
from omegaconf import OmegaConf

from embodied_rm.cli import compose
from embodied_rm.cli.config_errors import field_type
from embodied_rm.cli.main import load_command, main
from embodied_rm.config_files import command_display_name, command_names
from embodied_rm.run_lock import LOCK_FILE, lock_folder

WITHOUT_RUN_FOLDER = {"annotate", "push", "serve", "tasks"}
"""`annotate` locks the dataset (tests/annotate). The others write nothing that a second process could write too."""


def required_words(command: str, folder: Path) -> list[str]:
    """Return values for the keys without a default."""
    words = []
    for name in sorted(OmegaConf.missing_keys(compose.compose_untyped(command))):
        hint = field_type(load_command(command).schema, name)
        value = 1 if hint in (int, float) else folder
        words.append(f"{name}=[{folder}/first,{folder}/second]" if get_origin(hint) is tuple else f"{name}={value}")
    return words


def test_the_commands_without_a_run_folder() -> None:
    assert {name for name in command_names() if not load_command(name).writes_run_folder} == WITHOUT_RUN_FOLDER


@pytest.mark.parametrize("command", sorted(set(command_names()) - WITHOUT_RUN_FOLDER))
def test_the_second_process_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, words = tmp_path / "run", required_words(command, tmp_path)
    for path in (folder, tmp_path / "first", tmp_path / "second"):
        path.mkdir()
    with lock_folder(folder):
        assert main([*command_display_name(command).split(), *words, f"out={folder}"]) == 2
        assert [path.name for path in folder.iterdir()] == [LOCK_FILE], "the second process wrote nothing"
    assert re.search(f"{folder} is in use by process .*: wait, or name another out=", capsys.readouterr().err)
