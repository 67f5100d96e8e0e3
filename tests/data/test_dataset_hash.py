"""Hashes of stored episodes, and sources that are pickled to other processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode, paint_frames
from test_hdf5 import write_robomimic

from embodied_rm.data.dataset_hash import EDGE_BYTES, hash_episodes, hash_file
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import write_video


@pytest.fixture(scope="module", params=["videos", "lerobot", "robomimic"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EpisodeSource:
    folder = tmp_path_factory.mktemp("identity")
    if request.param == "videos":
        for name in ("a", "b"):
            (folder / name).mkdir()
            write_video(folder / name / "front.mp4", paint_frames(range(5)), 10.0)
        return open_dataset(folder, "lift it")
    if request.param == "lerobot":
        return open_dataset(write_v21_dataset(folder / "data", [make_episode(i, 20) for i in range(2)]))
    return open_dataset(write_robomimic(folder / "in.hdf5"))


def test_pickled_source_reads_the_same(source: EpisodeSource) -> None:
    source.episode(0)  # with a warm cache
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own bytes)
    assert copy.meta == source.meta
    assert hash_episodes(copy, range(len(copy))) == hash_episodes(source, range(len(source)))
    for view, frames in source.episode(1).views.items():
        np.testing.assert_array_equal(copy.episode(1).views[view], frames)


def test_hash_depends_on_episodes_and_order(source: EpisodeSource) -> None:
    hashes = [hash_episodes(source, rows) for rows in ((0,), (1,), (0, 1), (1, 0))]
    assert len(set(hashes)) == 4 and hash_episodes(source, (0, 1)) == hashes[2]
    assert all(path.is_file() for index in range(len(source)) for path in source.files(index))


def test_file_hash_depends_on_size_and_both_ends(tmp_path: Path) -> None:
    path, content = tmp_path / "a", bytearray(3 * EDGE_BYTES)
    path.write_bytes(content)
    original_hash = hash_file(path)
    (tmp_path / "b").write_bytes(content)
    assert hash_file(tmp_path / "b") == original_hash, "wherever it lies"
    for changed in (b"\1" + content[1:], content[:-1] + b"\1", content[:-1]):
        path.write_bytes(changed)
        assert hash_file(path) != original_hash
    assert hash_file(tmp_path / "none") == "not read: No such file or directory"
    path.write_bytes(b"")
    assert hash_file(path).startswith("0 ")
