"""Episodes are prefetched in order and in blocks; read errors are raised where the frames are used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from painted_frames import H, W, paint_frames

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
from embodied_rm.data.recordings.recording import Recording, find_recording
from embodied_rm.data.recordings.recording_dataset import RecordingDataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.types import Episode

LENGTHS = (2 * FRAMES_PER_BLOCK + 3, FRAMES_PER_BLOCK)
SIZE = (H // 2, W // 2)


def make_recording(folder: Path, length: int) -> Recording:
    folder.mkdir()
    for view, first in (("front", 0), ("wrist", 5)):
        write_video(folder / f"{view}.mp4", paint_frames(range(first, first + length)), 20.0)
    return find_recording(folder, "lift it")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> RecordingDataset:
    root = tmp_path_factory.mktemp("videos")
    return RecordingDataset([make_recording(root / str(number), length) for number, length in enumerate(LENGTHS)])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LeRobotDataset:
    root = tmp_path_factory.mktemp("videos") / "dataset"
    with DatasetWriter(root, robot_type="none") as writer:
        for number, length in enumerate(LENGTHS):
            views = {"front": paint_frames(range(length)), "wrist": paint_frames(range(9, 9 + length))}
            writer.add(Episode(name=f"episode_{number:06d}", views=views, instruction="lift it", fps=20.0))
    return LeRobotDataset(root)


@pytest.mark.parametrize("kind", ["recordings", "dataset"])
def test_blocks_concatenate_to_episodes(kind: str, request: pytest.FixtureRequest) -> None:
    source: EpisodeSource = request.getfixturevalue(kind)
    blocks = list(iter_blocks(source, [1, 0], ["wrist", "front"], SIZE))
    assert [index for index, _ in blocks] == [1, 0, 0, 0] and count_blocks(source, [1, 0]) == 4
    for index in (0, 1):
        episode = source.episode(index, size=SIZE)
        read = np.concatenate([views.frames for block_index, views in blocks if block_index == index])
        np.testing.assert_array_equal(read, np.stack([episode.views["wrist"], episode.views["front"]], axis=1))
        assert source.frame_rate(index) == episode.fps


def test_prefetch_is_limited() -> None:
    produced = []
    for used, item in enumerate(prefetch(produced.append(i) or i for i in range(1, 50))):
        assert item == used + 1 and len(produced) <= used + 1 + PREFETCH_COUNT
    assert len(produced) == 49


def test_an_iteration_that_is_given_up_does_not_wait_for_the_item_that_is_read() -> None:
    """Garbage collection closed it in a thread that was starting, which then waited for ever for the reading thread."""
    is_read, was_awaited = threading.Event(), []

    def items() -> Iterator[int]:
        yield 1
        was_awaited.append(is_read.wait(60))

    iterator = prefetch(items())
    assert next(iterator) == 1
    iterator.close()
    assert not was_awaited
    is_read.set()


def test_unreadable_video_is_named_and_next_episode_is_complete(tmp_path: Path) -> None:
    source = RecordingDataset([make_recording(tmp_path / name, 2 * FRAMES_PER_BLOCK) for name in ("damaged", "valid")])
    (tmp_path / "damaged" / "wrist.mp4").unlink()
    failed_block, *blocks = iter_blocks(source, [0, 1], source.views, SIZE)
    with pytest.raises(DataError, match=r"wrist\.mp4: the video file does not exist"):
        list(iter_views([failed_block]))
    assert failed_block[0] == 0 and [index for index, _ in blocks] == [1, 1]
    assert sum(map(len, iter_views(blocks))) == 2 * FRAMES_PER_BLOCK
