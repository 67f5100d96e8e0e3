"""Some episodes of a dataset are read as in the whole dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sprites import episode

from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.subset import SubsetDataset
from embodied_rm.errors import UserError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "data") as writer:
        for number in range(4):
            writer.add(episode(number, length=6 + number))
    return tmp_path / "data"


def test_chosen_episodes_are_those_of_the_dataset(folder: Path) -> None:
    source = open_dataset(folder)
    subset = SubsetDataset(source, [3, 1, 3])
    assert [meta.name for meta in subset.meta] == [source.meta[3].name, source.meta[1].name]
    assert [meta.index_in_dataset(row) for row, meta in enumerate(subset.meta)] == [3, 1]
    for row, (chosen, expected) in enumerate(zip(subset, (source.episode(3), source.episode(1)), strict=True)):
        assert chosen.name == expected.name and chosen.instruction == expected.instruction
        np.testing.assert_array_equal(chosen.views["top"], expected.views["top"])
        np.testing.assert_array_equal(subset.columns(row).progress, expected.progress)
        frames = subset.read_frames(row, 1, 4, views=["top"], size=None).frames
        np.testing.assert_array_equal(frames[:, 0], expected.views["top"][1:4])
    assert hash_episodes(subset, [1]) == hash_episodes(source, [1])
    assert subset.files(0) == source.files(3) and subset.image_size(1) == source.image_size(1)
    assert subset.frame_rate(0) == source.frame_rate(3)


def test_missing_episode_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="episode 9 is not among the 4 readable episodes"):
        SubsetDataset(open_dataset(folder), [0, 9])
