"""Versions, columns and features of LeRobot datasets that differ from those of this package."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_edits import DATA, EPISODES, LENGTHS, edit_info, edit_table, set_version, write_v30
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode

from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_v30(tmp_path / "data")


def test_numbers_may_be_lists_of_one(dataset: Path) -> None:
    """As writers store features of shape [1]."""
    table = pq.read_table(dataset / DATA)
    names = ["timestamp", "frame_index", "episode_index", "index", "task_index"]
    edit_table(dataset / DATA, **{name: [[value] for value in table[name].to_pylist()] for name in names})
    source = open_dataset(dataset)
    assert source.issues == () and [len(episode) for episode in source] == list(LENGTHS)


def test_lists_may_be_large(dataset: Path) -> None:
    """As polars writes them."""
    large = pa.large_list(pa.large_string())
    edit_table(dataset / EPISODES, tasks=pa.array([["do thing 0"], ["do thing 1"]], large))
    for name in ("action", "observation.state", "task_index"):
        values = pq.read_table(dataset / DATA)[name].to_pylist()
        rows = [[value] for value in values] if name == "task_index" else values
        number_type = pa.int64() if name == "task_index" else pa.float32()
        edit_table(dataset / DATA, **{name: pa.array(rows, pa.large_list(number_type))})
    source = open_dataset(dataset)
    assert source.issues == () and [meta.instruction for meta in source.meta] == ["do thing 0", "do thing 1"]
    assert np.array_equal(source.episode(1).action, make_episode(1, LENGTHS[1]).action)


@pytest.mark.parametrize("version", ["v3.1", "v3.7", "3.0", "v3.0.2"])
def test_later_minor_versions_are_read(dataset: Path, version: str) -> None:
    set_version(dataset, version)
    source = open_dataset(dataset)
    assert len(source.meta) == 2 and source.issues == ()


@pytest.mark.parametrize("version", ["v4.0", "v1.6", "three", 3, None])
def test_other_versions_are_refused(dataset: Path, version: Any) -> None:
    set_version(dataset, version)
    with pytest.raises(DataError, match=f"has LeRobot version {version!r}; only v2.x and v3.x can be read"):
        open_dataset(dataset)


@pytest.mark.parametrize("declared", [False, True])
@pytest.mark.parametrize("columns", [["frame_index"], ["index"], ["timestamp"], ["frame_index", "index", "timestamp"]])
def test_columns_that_follow_from_the_order_of_the_rows_may_be_missing(
    dataset: Path, columns: list[str], declared: bool
) -> None:
    """As in datasets of GR00T."""
    edit_table(dataset / DATA, drop=columns)
    if not declared:
        edit_info(dataset, dict.fromkeys(columns))
    source = open_dataset(dataset)
    assert source.issues == () and [meta.dataset_from_index for meta in source.meta] == [0, LENGTHS[0]]
    assert len(source.episode(1).state) == LENGTHS[1]


def test_they_may_be_missing_in_version_2_1(tmp_path: Path) -> None:
    path = write_v21_dataset(tmp_path / "old", [make_episode(number, length) for number, length in enumerate(LENGTHS)])
    for file in (path / "data").rglob("*.parquet"):
        edit_table(file, drop=["frame_index", "index"])
    source = open_dataset(path)
    assert source.issues == () and [meta.dataset_from_index for meta in source.meta] == [0, LENGTHS[0]]


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_a_video_feature_without_files_is_left_out_and_reported(dataset: Path, tmp_path: Path, version: str) -> None:
    episodes = [make_episode(number, length) for number, length in enumerate(LENGTHS)]
    path = dataset if version == "v3.0" else write_v21_dataset(tmp_path / "old", episodes)
    feature = json.loads((path / "meta/info.json").read_text())["features"]["observation.images.front"]
    edit_info(path, {"observation.images.ego": feature})
    source = open_dataset(path)
    assert source.views == ("front", "wrist") and len(source.meta) == 2
    assert [issue.message for issue in source.issues] == ["lists observation.images.ego, which has no videos: left out"]


@pytest.mark.parametrize("views", [("observation.images.top", "images.top", "observation.top", "top"), ("top.left",)])
def test_views_keep_their_names_and_their_number(tmp_path: Path, views: tuple[str, ...]) -> None:
    episode = make_episode(0, 4)
    frames = next(iter(episode.views.values()))
    with DatasetWriter(tmp_path / "views") as writer:
        writer.add(replace(episode, views=dict.fromkeys(views, frames)))
    assert set(open_dataset(tmp_path / "views").views) == set(views)


def test_features_of_one_view_name_are_two_views(dataset: Path) -> None:
    info = json.loads((dataset / "meta/info.json").read_text())
    edit_info(dataset, {"observation.front": info["features"]["observation.images.front"]})
    shutil.copytree(dataset / "videos" / "observation.images.front", dataset / "videos" / "observation.front")
    edit_table(dataset / EPISODES, **video_columns(dataset))
    assert set(open_dataset(dataset).views) == {"front", "wrist", "observation.front"}


def video_columns(dataset: Path) -> dict[str, Any]:
    """The columns of the front view, for another feature."""
    table = pq.read_table(dataset / EPISODES)
    prefix = "videos/observation.images.front/"
    names = [name for name in table.column_names if name.startswith(prefix)]
    return {name.replace("observation.images.front", "observation.front"): table[name].to_pylist() for name in names}
