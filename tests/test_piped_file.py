"""A file that another library writes through a pipe."""

import os
from pathlib import Path

import pytest

from embodied_rm.report import piped_file


def test_content_arrives_and_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    content = os.urandom(3 * piped_file.CHUNK_BYTES + 5)
    with piped_file.piped_file(tmp_path / "file") as pipe:
        Path(pipe).write_bytes(content)
    assert (tmp_path / "file").read_bytes() == content
    with pytest.raises(FileNotFoundError), piped_file.piped_file(tmp_path / "missing" / "file") as pipe:
        Path(pipe).write_bytes(content)


def test_a_writer_that_keeps_the_pipe_is_not_awaited_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piped_file, "TIMEOUT_S", 0.2)
    with pytest.raises(TimeoutError), piped_file.piped_file(tmp_path / "file") as pipe:
        kept = os.open(pipe, os.O_WRONLY)
    os.close(kept)
