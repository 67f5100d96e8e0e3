"""Instructions in HDF5 files that change from step to step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from test_hdf5 import LENGTH, write_minari, write_robomimic

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError

HALF = LENGTH // 2
CHANGING = ["open the drawer"] * HALF + ["close  it "] * HALF
SUBGOALS = "open the drawer; then close it"


def open_with(folder: Path, name: str, texts: Any, in_file: str | None = "do something") -> EpisodeSource:
    """Open a file whose second demonstration has a dataset of texts."""
    path = write_robomimic(folder / "kitchen.hdf5", in_file)
    with h5py.File(path, "a") as file:
        file[f"data/demo_2/{name}"] = texts
    return open_dataset(path)


@pytest.mark.parametrize("name", ["language_instruction", "obs/language_instruction"])
@pytest.mark.parametrize(
    "texts",
    [CHANGING, [[text] for text in CHANGING], np.array(CHANGING, dtype="S20"), CHANGING[1:]],
    ids=["texts", "lists of one", "bytes", "without the last step"],
)
def test_an_instruction_that_changes_becomes_subgoals(name: str, texts: Any, tmp_path: Path) -> None:
    source = open_with(tmp_path, name, texts)
    assert [meta.instruction for meta in source.meta] == ["do something", SUBGOALS, "do something"]
    assert source.issues == ()


def test_a_goal_that_returns_counts_again(tmp_path: Path) -> None:
    texts = ["open it"] * 4 + ["close it"] * 4 + ["open it"] * 4
    assert open_with(tmp_path, "lang", texts).meta[1].instruction == "open it; then close it; then open it"


def test_steps_without_an_instruction_are_left_out_and_reported(tmp_path: Path) -> None:
    source = open_with(tmp_path, "lang", ["", *CHANGING[1:]])
    assert source.meta[1].instruction == SUBGOALS
    assert [issue.message for issue in source.issues] == ["demo_2: lang is blank at some steps: left out"]


@pytest.mark.parametrize("texts", [["open it", "pull it open"], [["open it", "pull it open"]] * LENGTH])
def test_several_texts_that_are_not_those_of_steps_are_reported(texts: Any, tmp_path: Path) -> None:
    """Phrasings, of which none is guessed."""
    source = open_with(tmp_path, "lang", texts)
    assert [meta.instruction for meta in source.meta] == ["do something"] * 3
    (issue,) = source.issues
    assert issue.message.startswith("lang is ['open it', 'pull it open'") and "is used" in issue.message


def test_without_another_instruction_they_leave_out_the_demonstration(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="contains no instruction; set instruction="):
        open_with(tmp_path, "lang", ["open it", "pull it open"], None)


def test_texts_that_change_all_the_time_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has different texts of more than 1048576 characters"):
        open_with(tmp_path, "lang", [f"{number} " + "x" * 100_000 for number in range(LENGTH)])


def test_minaris_missions_become_subgoals(tmp_path: Path) -> None:
    folder = write_minari(tmp_path / "doors")
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        for number, mission in ((0, ["open it", *["close it"] * LENGTH]), (1, ["", *["close it"] * LENGTH])):
            del file[f"episode_{number}/observations/mission"]
            file[f"episode_{number}/observations/mission"] = mission
    source = open_dataset(folder, feature_map=FeatureMap(fps=5))
    assert [meta.instruction for meta in source.meta] == ["open it; then close it", "close it", "open the door 2"]
    assert [issue.message for issue in source.issues] == [
        "episode_1: observations/mission is blank at some steps: left out"
    ]


def test_a_blank_mission_leaves_out_its_episode(tmp_path: Path) -> None:
    folder = write_minari(tmp_path / "doors", mission=" ")
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        del file["episode_0/observations/mission"]
        file["episode_0/observations/mission"] = [" "] * (LENGTH + 1)
    source = open_dataset(folder, feature_map=FeatureMap(fps=5))
    assert [(issue.episodes, issue.message) for issue in source.issues] == [
        (
            ("episode_0",),
            "contains no instruction for episode_0 (observations/mission is ' '); set instruction=",
        )
    ]
