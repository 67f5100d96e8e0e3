"""One read-only dataset for the package, and copies for tests that write."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from annotated_envs import make_recordings, serve_dataset
from browsers import browser, page

from embodied_rm.annotate.annotation_server import AnnotationServer

__all__ = ["browser", "page"]


@pytest.fixture(scope="package")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read-only."""
    return make_recordings(tmp_path_factory.mktemp("annotated") / "data")


@pytest.fixture
def folder(recordings: Path, tmp_path: Path) -> Path:
    """A copy to write into."""
    return Path(shutil.copytree(recordings, tmp_path / "data"))


@pytest.fixture
def server(folder: Path) -> Iterator[AnnotationServer]:
    """Serves `folder`."""
    with serve_dataset(folder) as running:
        yield running
