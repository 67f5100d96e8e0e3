"""A file is replaced atomically, and never through a planted link."""

from __future__ import annotations

from pathlib import Path

import pytest

from embodied_rm import atomic_file as atomic_file_module
from embodied_rm.atomic_file import atomic_file, write_atomic


def test_content_is_replaced_without_leftovers(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for content in ("one", b"two"):
        write_atomic(path, content)
        assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert list(tmp_path.iterdir()) == [path]


def test_exception_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, "old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_link_is_replaced_and_its_target_is_unchanged(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    path.symlink_to(target)
    write_atomic(path, "new")
    assert target.read_text() == "mine" and not path.is_symlink() and path.read_text() == "new"


def test_link_at_the_temporary_name_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a link with the guessed random name is not written through."""
    monkeypatch.setattr(atomic_file_module.secrets, "token_hex", lambda _: "guessed")
    (tmp_path / ".guessed.partial").symlink_to(tmp_path / "target")
    with pytest.raises(FileExistsError):
        write_atomic(tmp_path / "a", "new")
    assert not (tmp_path / "target").exists() and not (tmp_path / "a").exists()


def test_file_has_default_permissions(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", "")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_file_name_of_maximum_length(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomic(path, "new")
    assert path.read_text() == "new"
