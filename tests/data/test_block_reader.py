"""Videos are read ahead, in order, and never whole; what goes wrong in the reading is told where it is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from painted import H, W, painted

from embodied_rm.data.block_reader import (
    FRAMES_PER_BLOCK,
    PREFETCH_COUNT,
    count_blocks,
    iter_blocks,
    iter_views,
    prefetch,
)
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.recordings.folder import find_recording
from embodied_rm.data.recordings.recording import Recording
from embodied_rm.data.recordings.recording_dataset import Mp4Dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.types import Episode

LENGTHS = (2 * FRAMES_PER_BLOCK + 3, FRAMES_PER_BLOCK)
SIZE = (H // 2, W // 2)


def recording(folder: Path, length: int) -> Recording:
    folder.mkdir()
    for view, first in (("front", 0), ("wrist", 5)):
        write_video(folder / f"{view}.mp4", painted(range(first, first + length)), 20.0)
    return find_recording(folder, "lift it")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Mp4Dataset:
    root = tmp_path_factory.mktemp("videos")
    return Mp4Dataset([recording(root / str(number), length) for number, length in enumerate(LENGTHS)])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    root = tmp_path_factory.mktemp("videos") / "dataset"
    with DatasetWriter(root, robot_type="none") as writer:
        for number, length in enumerate(LENGTHS):
            views = {"front": painted(range(length)), "wrist": painted(range(9, 9 + length))}
            writer.add(Episode(name=f"episode_{number:06d}", views=views, instruction="lift it", fps=20.0))
    return LeRobotDataset(root)


@pytest.mark.parametrize("kind", ["recordings", "dataset"])
def test_the_blocks_together_are_the_episodes(kind: str, request: pytest.FixtureRequest) -> None:
    source: EpisodeSource = request.getfixturevalue(kind)
    blocks = list(iter_blocks(source, [1, 0], ["wrist", "front"], SIZE))
    assert [row for row, _ in blocks] == [1, 0, 0, 0] and count_blocks(source, [1, 0]) == 4
    for row in (0, 1):
        episode = source.episode(row, size=SIZE)
        read = np.concatenate([views.frames for of, views in blocks if of == row])
        np.testing.assert_array_equal(read, np.stack([episode.views["wrist"], episode.views["front"]], axis=1))
        assert source.frame_rate(row) == episode.fps


def test_no_more_is_read_than_a_few_blocks_ahead() -> None:
    made = []
    for used, item in enumerate(prefetch(made.append(i) or i for i in range(1, 50))):
        assert item == used + 1 and len(made) <= used + 1 + PREFETCH_COUNT
    assert len(made) == 49


def test_a_video_that_cannot_be_read_ends_by_name_and_the_next_one_is_whole(tmp_path: Path) -> None:
    found = Mp4Dataset([recording(tmp_path / name, 2 * FRAMES_PER_BLOCK) for name in ("broken", "sound")])
    (tmp_path / "broken" / "wrist.mp4").unlink()
    told, *blocks = iter_blocks(found, [0, 1], found.views, SIZE)
    with pytest.raises(DataError, match=r"wrist\.mp4: the video file does not exist"):
        list(iter_views([told]))
    assert told[0] == 0 and [row for row, _ in blocks] == [1, 1]
    assert sum(map(len, iter_views(blocks))) == 2 * FRAMES_PER_BLOCK
