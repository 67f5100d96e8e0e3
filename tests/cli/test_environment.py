"""Folders and variables of the process that no command can use: one sentence and the right exit code."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from embodied_rm import environment
from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.parquet import read_footer
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.in_context import frozen_encoder

NOT_UTF8 = os.fsdecode(b"caf\xe9")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    write_video(folder / "front.mp4", np.zeros((12, 32, 32, 3), np.uint8), 10)
    return folder


def sentence_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must end with code 2, and return its message."""
    assert main(words) == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"RANK": "1"}, "RANK must be below WORLD_SIZE, 1, got '1'"),
        ({"RANK": "x"}, "RANK must be a whole number >= 0, got 'x'"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE must be a whole number >= 1, got ''"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE must be a whole number >= 1, got '0'"),
    ],
)
def test_ranks_are_checked(
    variables: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank without a size wrote nothing, without a word."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert sentence in sentence_of(["tasks"], capsys)


def test_a_completion_without_a_line_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COMP_LINE", raising=False)
    assert "the environment variable COMP_LINE is not set" in sentence_of(["-sc", "query=bash"], capsys)


def test_a_working_directory_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    os.chdir("gone")
    (tmp_path / "gone").rmdir()
    assert "the working directory was deleted" in sentence_of(["tasks"], capsys)


def test_no_folder_for_temporary_files_is_not_blamed_on_a_checkpoint(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(tmp_path / "missing")])
    words = ["score", f"data={data}", "instruction=lift", f"out={tmp_path / 'out'}"]
    assert "no folder for temporary files can be written: set TMPDIR" in sentence_of(words, capsys)
    assert not (tmp_path / "out").exists()


def test_a_folder_whose_name_is_an_interpolation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["inspect", r"data=$\{foo\}", "instruction=lift"]
    assert "interpolation is not accepted in a value" in sentence_of(words, capsys)


def test_a_variable_that_mujoco_rejects_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "embodied_rm", "collect", "tasks=[lift_cube]", f"out={tmp_path / 'out'}"]
    variables = {**os.environ, "MUJOCO_GL": "bogus", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    sentence = "error: the environment variable MUJOCO_GL must be egl, osmesa, glfw or off, got 'bogus'"
    assert result.returncode == 2 and result.stderr.splitlines() == [sentence]


def test_a_variable_that_matplotlib_rejects_is_named() -> None:
    code = "from embodied_rm.environment import *\nwith checked_environment(): import matplotlib"
    variables = {**os.environ, "MPLBACKEND": "bogus"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert "UserError: the environment variable MPLBACKEND must be a backend of matplotlib" in result.stderr


def test_names_that_the_output_cannot_encode_are_escaped(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "o_\u6c34"
    command = [sys.executable, "-m", "embodied_rm", "inspect", f"data={data}", "instruction=lift", f"out={out}"]
    variables = {**os.environ, "PYTHONIOENCODING": "latin-1", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert result.returncode == 0 and out.is_dir()
    assert "o_\\u6c34" in result.stdout and "Traceback" not in result.stderr


def test_paths_of_parquet_files_must_be_utf8(tmp_path: Path) -> None:
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    (folder / "episodes.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="a name in this path is not UTF-8"):
        read_footer(folder / "episodes.parquet")
    with pytest.raises(DataError, match="a name in this path is not UTF-8"):
        DatasetWriter(folder / "data")
    assert [path.name for path in folder.iterdir()] == ["episodes.parquet"]


def test_an_account_without_a_home_needs_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(frozen_encoder.CACHE_DIR_VARIABLE, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as without HOME and an entry for the user
    with pytest.raises(UserError, match=f"there is no home folder; set HOME, or {frozen_encoder.CACHE_DIR_VARIABLE}"):
        frozen_encoder.graph_cache_dir()


def test_ranks_of_torchrun_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert environment.rank_and_world_size() == (3, 4)
