"""What episodes are made of, told at a glance; and sources, which go to other processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from lerobot_v21 import write_v21_dataset
from painted import make_episode, painted
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
            write_video(folder / name / "front.mp4", painted(range(5)), 10.0)
        return open_dataset(folder, "lift it")
    if request.param == "lerobot":
        return open_dataset(write_v21_dataset(folder / "data", [make_episode(i, 20) for i in range(2)]))
    return open_dataset(write_robomimic(folder / "in.hdf5"))


def test_a_source_that_went_to_another_process_reads_the_same(source: EpisodeSource) -> None:
    source.episode(0)  # with whatever it keeps at hand by now
    copy = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own bytes)
    assert copy.meta == source.meta
    assert hash_episodes(copy, range(len(copy))) == hash_episodes(source, range(len(source)))
    for view, frames in source.episode(1).views.items():
        np.testing.assert_array_equal(copy.episode(1).views[view], frames)


def test_the_identity_is_of_these_episodes_and_in_this_order(source: EpisodeSource) -> None:
    told = [hash_episodes(source, rows) for rows in ((0,), (1,), (0, 1), (1, 0))]
    assert len(set(told)) == 4 and hash_episodes(source, (0, 1)) == told[2]
    assert all(path.is_file() for row in range(len(source)) for path in source.files(row))


def test_a_file_is_known_by_its_size_and_its_two_ends(tmp_path: Path) -> None:
    path, content = tmp_path / "a", bytearray(3 * EDGE_BYTES)
    path.write_bytes(content)
    whole = hash_file(path)
    (tmp_path / "b").write_bytes(content)
    assert hash_file(tmp_path / "b") == whole, "wherever it lies"
    for changed in (b"\1" + content[1:], content[:-1] + b"\1", content[:-1]):
        path.write_bytes(changed)
        assert hash_file(path) != whole
    assert hash_file(tmp_path / "none") == "not read: No such file or directory"
    path.write_bytes(b"")
    assert hash_file(path).startswith("0 ")
