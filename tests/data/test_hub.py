"""Datasets of a hub served on this machine: downloaded once, and only the files of a dataset."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer, hub_environment, serve_hub
from sprites import episode

from embodied_rm.data.hub import download_dataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import DataError


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    """A hub with the dataset `people/carrying`."""
    with DatasetWriter(tmp_path / "dataset") as writer:
        for number in range(3):
            writer.add(episode(number, length=9))
    (tmp_path / "dataset" / "README.md").write_text("what it is")
    (tmp_path / "dataset" / "loader.py").write_text("raise SystemExit('code of a dataset was run')")
    with serve_hub() as server:
        server.add("datasets", "people/carrying", tmp_path / "dataset")
        yield server


def inspect(name: str, hub: HubServer, home: Path) -> subprocess.CompletedProcess[str]:
    """Run `embodied-rm inspect` on a dataset of that hub."""
    env = os.environ | hub_environment(hub.url, home)
    words = [sys.executable, "-m", "embodied_rm", "inspect", f"data={name}"]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, cwd=home.parent)


def test_dataset_is_downloaded_once(hub: HubServer, tmp_path: Path) -> None:
    (files,) = hub.repositories["datasets", "people/carrying"].commits.values()
    for _ in range(2):
        result = inspect("hub:people/carrying", hub, tmp_path / "home")
        assert result.returncode == 0, result.stderr
        assert "3" in result.stdout
        assert set(hub.downloads) == {name for name in files if name not in ("README.md", "loader.py")}
        assert set(hub.downloads.values()) == {1}


def test_download_error_says_what_the_hub_lacks(hub: HubServer, tmp_path: Path) -> None:
    result = inspect("hub:people/dancing", hub, tmp_path / "home")
    assert result.returncode == 2 and "hub:people/dancing: cannot be downloaded: the hub at" in result.stderr
    assert "has no such repository" in result.stderr
    result = inspect("hub:people/carrying@v3.0", hub, tmp_path / "home")
    assert result.returncode == 2 and "the repository has no such branch, tag or commit" in result.stderr
    hub.shutdown()
    hub.server_close()
    result = inspect("hub:people/carrying@v2.1", hub, tmp_path / "home")
    assert result.returncode == 2 and "does not answer, and the cache has no copy" in result.stderr


@pytest.mark.parametrize("name", ["hub:carrying", "hub:../x", "hub:a/..", "hub:a/b@../../c", "hub:a/b/c", "hub:/etc/x"])
def test_invalid_name_is_rejected_without_a_request(name: str) -> None:
    with pytest.raises(DataError, match="a dataset of the hub is named hub:owner/name"):
        download_dataset(Path(name))
