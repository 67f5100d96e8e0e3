"""Several datasets in a folder are one: every episode of each, counted through."""

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
"""Episodes and their frames."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, (episodes, length) in SIZES.items():
        with DatasetWriter(tmp_path / name) as writer:
            for number in range(episodes):
                writer.add(episode(number + length, length=length))
    return tmp_path


def test_all_of_them_in_the_order_of_their_names(folder: Path) -> None:
    whole, first, second = open_dataset(folder), open_dataset(folder / "a_first"), open_dataset(folder / "b_second")
    assert [meta.name for meta in whole.meta] == [
        *(f"a_first/{meta.name}" for meta in first.meta),
        *(f"b_second/{meta.name}" for meta in second.meta),
    ]
    assert [meta.episode_index for meta in whole.meta] == [0, 1, 2, 3, 4]
    assert [meta.dataset_from_index for meta in whole.meta] == [0, 7, 14, 23, 32]
    apart = [*first, *second]
    for row, (one, other) in enumerate(zip(whole, apart, strict=True)):
        assert one.name == whole.meta[row].name and one.instruction == other.instruction
        assert all(np.array_equal(one.views[view], other.views[view]) for view in whole.views)
        np.testing.assert_array_equal(one.progress, whole.columns(row).progress)
        some = whole.read_frames(row, 2, 5, views=["top"], size=None)
        np.testing.assert_array_equal(some.frames[:, 0], other.views["top"][2:5])
        assert len(whole.files(row)) == 3 and all(path.is_relative_to(folder) for path in whole.files(row))


def test_episodes_that_are_left_out_keep_their_numbers(folder: Path) -> None:
    before = open_dataset(folder)
    (broken,) = {before.files(1)[0]} - {before.files(3)[0]}
    broken.write_bytes(broken.read_bytes()[:200])  # both episodes of the first dataset
    with pytest.raises(DataError, match="no episode can be used"):
        open_dataset(folder)
    with DatasetWriter(folder / "c_third", video_file_mb=1e-9) as writer:
        for number in range(3):
            writer.add(episode(number, length=6))
    (folder / "a_first").rename(folder / ".a_first")  # hidden ones are nobody's
    last = open_dataset(folder / "c_third").files(2)[0]
    last.write_bytes(last.read_bytes()[:200])
    with DatasetWriter(folder / "d_fourth") as writer:
        writer.add(episode(5, length=4))
    whole = open_dataset(folder)
    assert [meta.episode_index for meta in whole.meta] == [0, 1, 2, 3, 4, 6]
    assert {name for fault in whole.issues for name in fault.episodes} == {"c_third/sprite_002_carry"}


def test_only_views_that_all_have(folder: Path) -> None:
    with DatasetWriter(folder / "c_third") as writer:
        one = episode(0, length=5)
        writer.add(type(one)(**{**vars(one), "views": {"top": one.views["top"]}}))
    whole = open_dataset(folder)
    assert whole.views == ("top",) and set(whole.episode(0).views) == {"top"} and len(whole.files(0)) == 2
    with pytest.raises(DataError, match="front"):
        whole.episode(0, views=["front"])
    assert hash_episodes(whole, [0, 1]) != hash_episodes(whole, [1, 2])


def test_one_of_them_must_be_named_to_annotate(folder: Path) -> None:
    with pytest.raises(DataError, match="holds several datasets, name one of them"):
        open_annotations(folder, open_dataset(folder))
