"""Several datasets in a folder are concatenated, with offset indices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sprites import episode

from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_annotations, open_dataset
from embodied_rm.errors import DataError

SIZES = {"b_second": (3, 9), "a_first": (2, 7)}
"""Dataset -> number of episodes, and frames per episode."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, (episodes, length) in SIZES.items():
        with DatasetWriter(tmp_path / name) as writer:
            for number in range(episodes):
                writer.add(episode(number + length, length=length))
    return tmp_path


def test_datasets_are_sorted_by_name(folder: Path) -> None:
    combined, first, second = open_dataset(folder), open_dataset(folder / "a_first"), open_dataset(folder / "b_second")
    assert [meta.name for meta in combined.meta] == [
        *(f"a_first/{meta.name}" for meta in first.meta),
        *(f"b_second/{meta.name}" for meta in second.meta),
    ]
    assert [meta.episode_index for meta in combined.meta] == [0, 1, 2, 3, 4]
    assert [meta.dataset_from_index for meta in combined.meta] == [0, 7, 14, 23, 32]
    episodes = [*first, *second]
    for index, (combined_episode, expected) in enumerate(zip(combined, episodes, strict=True)):
        assert (
            combined_episode.name == combined.meta[index].name and combined_episode.instruction == expected.instruction
        )
        assert all(np.array_equal(combined_episode.views[view], expected.views[view]) for view in combined.views)
        np.testing.assert_array_equal(combined_episode.progress, combined.columns(index).progress)
        views = combined.read_frames(index, 2, 5, views=["top"], size=None)
        np.testing.assert_array_equal(views.frames[:, 0], expected.views["top"][2:5])
        assert len(combined.files(index)) == 3 and all(path.is_relative_to(folder) for path in combined.files(index))


def test_excluded_episodes_keep_their_indices(folder: Path) -> None:
    before = open_dataset(folder)
    (damaged_file,) = {before.files(1)[0]} - {before.files(3)[0]}
    damaged_file.write_bytes(damaged_file.read_bytes()[:200])  # both episodes of the first dataset
    with pytest.raises(DataError, match="no episode can be used"):
        open_dataset(folder)
    with DatasetWriter(folder / "c_third", video_file_mb=1e-9) as writer:
        for number in range(3):
            writer.add(episode(number, length=6))
    (folder / "a_first").rename(folder / ".a_first")  # hidden folders are ignored
    last = open_dataset(folder / "c_third").files(2)[0]
    last.write_bytes(last.read_bytes()[:200])
    with DatasetWriter(folder / "d_fourth") as writer:
        writer.add(episode(5, length=4))
    combined = open_dataset(folder)
    assert [meta.episode_index for meta in combined.meta] == [0, 1, 2, 3, 4, 6]
    assert {name for issue in combined.issues for name in issue.episodes} == {"c_third/sprite_002_carry"}


def test_only_common_views_are_kept(folder: Path) -> None:
    with DatasetWriter(folder / "c_third") as writer:
        one = episode(0, length=5)
        writer.add(type(one)(**{**vars(one), "views": {"top": one.views["top"]}}))
    combined = open_dataset(folder)
    (issue,) = combined.issues
    assert issue.message == "the view front is left out: it is missing in c_third" and issue.episodes == ()
    assert combined.views == ("top",) and set(combined.episode(0).views) == {"top"} and len(combined.files(0)) == 2
    with pytest.raises(DataError, match="front"):
        combined.episode(0, views=["front"])
    assert hash_episodes(combined, [0, 1]) != hash_episodes(combined, [1, 2])


def test_concatenated_datasets_cannot_be_annotated(folder: Path) -> None:
    with pytest.raises(DataError, match="holds several datasets, name one of them"):
        open_annotations(folder, open_dataset(folder))
