"""LeRobot v3.0 datasets: episodes read back equal, and an interrupted write leaves no dataset."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from painted_frames import H, W, make_episode, psnr, read_numbers

from embodied_rm.data.lerobot.chunk_writers import chunk_and_file_index
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.stats import aggregate_stats, column_stats, image_stats
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import DataError
from embodied_rm.types import Episode

LENGTHS = [20, 7, 31, 1, 16, 12]


def write(path: Path, episodes, **options) -> Path:
    with DatasetWriter(path, **options) as writer:
        for episode in episodes:
            writer.add(episode)
    return path


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    return [make_episode(i, length) if length > 2 else short_episode(i, length) for i, length in enumerate(LENGTHS)]


def short_episode(index: int, length: int) -> Episode:
    """An episode too short for subtasks."""
    episode = make_episode(index, 4)
    columns = {name: getattr(episode, name)[:length] for name in ("progress", "state", "action")}
    views = {name: frames[:length] for name, frames in episode.views.items()}
    return replace(episode, views=views, subtasks=(), **columns)


@pytest.fixture(scope="module")
def folder(episodes, tmp_path_factory) -> Path:
    return write(
        tmp_path_factory.mktemp("lerobot") / "data", episodes, robot_type="panda", action_names=["x", "y", "z"]
    )


@pytest.fixture(scope="module")
def dataset(folder) -> LeRobotDataset:
    return LeRobotDataset(folder)


def assert_equal(actual: Episode, expected: Episode) -> None:
    """Everything but pixels is equal; pixels are close and of the correct frame."""
    for name in ("name", "instruction", "fps", "subtasks", "success", "metadata"):
        assert getattr(actual, name) == getattr(expected, name), name
    for name in ("progress", "state", "action"):
        actual_column, expected_column = getattr(actual, name), getattr(expected, name)
        assert (actual_column is None) == (expected_column is None), name
        if expected_column is not None:
            assert actual_column.dtype == np.float32
            np.testing.assert_array_equal(actual_column, expected_column, err_msg=name)
    assert set(actual.views) == set(expected.views)
    for view, frames in expected.views.items():
        assert read_numbers(actual.views[view]) == read_numbers(frames)
        assert psnr(actual.views[view], frames) > 35


def test_round_trip(dataset, episodes):
    assert len(dataset) == len(episodes)
    for actual, expected in zip(dataset, episodes, strict=True):
        assert_equal(actual, expected)


def test_metadata_without_decoding(dataset, episodes):
    for meta, expected in zip(dataset.meta, episodes, strict=True):
        assert (meta.name, meta.length, meta.instruction) == (expected.name, len(expected), expected.instruction)
        assert (meta.success, meta.subtasks, meta.metadata) == (expected.success, expected.subtasks, expected.metadata)


def test_read_order_does_not_change_pixels(dataset):
    in_order = list(dataset)
    for i in (5, 0, 3, 3, 2, 1, 4):
        for view, frames in dataset.episode(i).views.items():
            np.testing.assert_array_equal(frames, in_order[i].views[view])


@pytest.mark.parametrize("stride", [1, 2, 5])
def test_stride_size_and_views(dataset, episodes, stride):
    actual, expected = dataset.episode(2, views=["wrist"], size=(24, 40), stride=stride), episodes[2]
    frame_indices = [*range(0, 31, stride)] if 30 % stride == 0 else [*range(0, 31, stride), 30]
    assert list(actual.views) == ["wrist"] and actual.views["wrist"].shape == (len(frame_indices), 24, 40, 3)
    assert read_numbers(dataset.episode(2, stride=stride).views["wrist"]) == [200 + k for k in frame_indices]
    np.testing.assert_array_equal(actual.progress, expected.progress[frame_indices])
    np.testing.assert_array_equal(actual.state, expected.state[frame_indices])
    assert actual.fps == expected.fps / stride
    assert [subtask.name for subtask in actual.subtasks] == ["reach", "lift"]


def test_unknown_view_suggests_the_nearest(dataset):
    with pytest.raises(DataError, match=r"unknown view 'writs'. Did you mean 'wrist'\? Available: front, wrist"):
        dataset.episode(0, views=["writs"])


def test_files_rotate_at_the_size_limit(tmp_path):
    expected = [make_episode(i, 30) for i in range(8)]
    path = write(tmp_path / "rotated", expected, data_file_mb=1e-6, video_file_mb=1e-3)
    assert len(list(path.glob("data/chunk-000/*.parquet"))) == 8
    for view in ("front", "wrist"):
        assert len(list(path.glob(f"videos/observation.images.{view}/chunk-000/*.mp4"))) > 2
    for actual, episode in zip(LeRobotDataset(path), expected, strict=True):
        assert_equal(actual, episode)


def test_chunks_have_a_thousand_files():
    assert chunk_and_file_index(999) == {"chunk_index": 0, "file_index": 999}
    assert chunk_and_file_index(1000) == {"chunk_index": 1, "file_index": 0}


def test_folder_layout_matches_lerobot(folder, episodes):
    info = json.loads((folder / "meta/info.json").read_text())
    assert info["codebase_version"] == "v3.0" and info["robot_type"] == "panda" and info["fps"] == 10
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (6, sum(LENGTHS), 2)
    assert info["splits"] == {"train": "0:6"}
    assert info["features"]["observation.images.front"]["shape"] == [H, W, 3]
    assert info["features"]["action"] == {"dtype": "float32", "shape": [3], "names": ["x", "y", "z"]}
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "data/chunk-000/file-000.parquet",
        "videos/observation.images.front/chunk-000/file-000.mp4",
        "videos/observation.images.wrist/chunk-000/file-000.mp4",
    }
    rows = pq.read_table(folder / "data/chunk-000/file-000.parquet")
    assert set(rows.column_names) == {key for key, f in info["features"].items() if f["dtype"] != "video"}
    assert rows.schema.field("action").type == pa.list_(pa.float32(), 3)
    assert rows["index"].to_pylist() == list(range(sum(LENGTHS)))
    listed = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    key = "videos/observation.images.front"
    for previous, current in pairwise(listed):
        assert current["dataset_from_index"] == previous["dataset_to_index"]
        assert current[f"{key}/from_timestamp"] == previous[f"{key}/to_timestamp"]
    assert {"tasks", "length", "data/chunk_index", "stats/action/mean", f"stats/{key[7:]}/std"} <= set(listed[0])


def test_statistics_cover_all_frames(folder, episodes):
    stats = json.loads((folder / "meta/stats.json").read_text())
    for key, name in (("action", "action"), ("observation.state", "state")):
        column = np.concatenate([getattr(episode, name) for episode in episodes])
        for stat in ("min", "max", "mean", "std"):
            np.testing.assert_allclose(
                stats[key][stat], getattr(np, stat)(column.astype(float), 0), rtol=1e-9, atol=1e-12
            )
        assert stats[key]["count"] == [sum(LENGTHS)]
    pixels = np.concatenate([episode.views["front"] for episode in episodes]) / 255
    for stat in ("min", "max", "mean", "std"):
        expected = getattr(np, stat)(pixels, (0, 1, 2)).reshape(3, 1, 1)
        np.testing.assert_allclose(stats["observation.images.front"][stat], expected, rtol=1e-6)


@settings(deadline=None)
@given(st.lists(arrays(np.float32, st.tuples(st.integers(1, 6), st.just(2)), elements=st.floats(-9, 9, width=32)),
                min_size=1, max_size=5))  # fmt: skip
def test_aggregated_statistics_equal_those_of_the_union(parts):
    aggregated, union = aggregate_stats(map(column_stats, parts)), column_stats(np.concatenate(parts))
    for name, value in union.items():
        np.testing.assert_allclose(aggregated[name], value, rtol=1e-6, atol=1e-6)


def test_image_statistics_of_long_episodes_use_a_sample():
    frames = np.random.default_rng(0).integers(0, 256, (350, 8, 8, 3), dtype=np.uint8)
    stats = image_stats(frames)
    assert stats["count"] == [100] and stats["mean"].shape == (3, 1, 1)
    np.testing.assert_allclose(stats["mean"].ravel(), frames.mean((0, 1, 2)) / 255, atol=0.02)


def test_missing_columns_are_none(tmp_path):
    expected = replace(make_episode(0), state=None, action=None, progress=None, subtasks=(), success=None, metadata={})
    actual = LeRobotDataset(write(tmp_path / "data", [expected])).episode(0)
    assert_equal(actual, expected)


def test_state_of_size_one(tmp_path):
    expected = replace(make_episode(0), state=np.arange(20, dtype=np.float32)[:, None])
    actual = LeRobotDataset(write(tmp_path / "data", [expected])).episode(0)
    np.testing.assert_array_equal(actual.state, expected.state)


def test_fractional_frame_rate(tmp_path):
    expected = [make_episode(i, 50, fps=20 / 3) for i in range(3)]
    for actual, episode in zip(LeRobotDataset(write(tmp_path / "data", expected)), expected, strict=True):
        assert_equal(actual, episode)


def make_third_party(folder: Path) -> None:
    """Rewrite a dataset as a third-party tool: without added columns, with lists of variable length, and doubles."""
    rows = folder / "data/chunk-000/file-000.parquet"
    table = pq.read_table(rows).drop_columns(["subtask_index", "progress"])
    for key in ("action", "observation.state"):
        wide = pa.array(table[key].to_pylist(), pa.list_(pa.float64()))
        table = table.set_column(table.column_names.index(key), key, wide)
    pq.write_table(table, rows, row_group_size=9)
    listed = folder / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(listed)
    added_columns = [
        name for name in table.column_names if name in ("name", "success") or name.startswith(("subtask_", "text/"))
    ]
    pq.write_table(table.drop_columns(added_columns), listed)
    info = json.loads((folder / "meta/info.json").read_text())
    for key in ("subtask_index", "progress"):
        del info["features"][key]
    (folder / "meta/info.json").write_text(json.dumps(info))


def test_third_party_datasets_have_no_success_and_no_subtasks(episodes, tmp_path):
    path = write(tmp_path / "data", episodes)
    make_third_party(path)
    for i, (actual, expected) in enumerate(zip(LeRobotDataset(path), episodes, strict=True)):
        unknown_fields = {"name": f"episode_{i:06d}", "success": None, "subtasks": (), "progress": None, "metadata": {}}
        assert_equal(actual, replace(expected, **unknown_fields))


def test_existing_folder_is_rejected(folder, tmp_path):
    (tmp_path / "existing").mkdir()
    for path in (folder, tmp_path / "existing"):
        with pytest.raises(DataError, match="already exists"):
            DatasetWriter(path)
    assert [path.name for path in tmp_path.iterdir()] == ["existing"]


def test_empty_dataset_is_not_written(tmp_path):
    with pytest.raises(DataError, match="no episode was recorded"), DatasetWriter(tmp_path / "data"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_exception_leaves_no_files(tmp_path):
    with pytest.raises(KeyboardInterrupt), DatasetWriter(tmp_path / "data") as writer:
        writer.add(make_episode(0))
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_killed_writer_leaves_no_dataset(tmp_path):
    code = (
        f"import sys, os; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from painted_frames import make_episode\n"
        "from embodied_rm.data.lerobot.write import DatasetWriter\n"
        f"writer = DatasetWriter({str(tmp_path / 'data')!r})\n"
        "i = 0\n"
        "while True:\n"
        "    writer.add(make_episode(i)); i += 1\n"
        "    if i == 3: print('three', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"three\n"
    time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not (tmp_path / "data").exists()
    write(tmp_path / "data", [make_episode(0)])  # and its leftovers do not interfere
    assert len(LeRobotDataset(tmp_path / "data")) == 1


MISFITS = {
    "other views": (lambda e: replace(e, views={"front": e.views["front"]}), "views is"),
    "other size": (lambda e: replace(e, views={v: f[:, :, :32] for v, f in e.views.items()}), "views is"),
    "other rate": (lambda e: replace(e, fps=20.0), "fps is 20.0"),
    "other state": (lambda e: replace(e, state=e.state[:, :2]), "state is 2"),
    "no action": (lambda e: replace(e, action=None), "action is None"),
    "no progress": (lambda e: replace(e, progress=None), "progress is False"),
    "same name": (lambda e: replace(e, name="trial_0"), "already has an episode of that name"),
    "not a number": (
        lambda e: replace(e, state=np.where(e.state == e.state[4, 2], np.nan, e.state)),
        "not finite at frame 4",
    ),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_mismatched_episode_is_rejected_and_others_are_unchanged(tmp_path, misfit):
    change, message = MISFITS[misfit]
    with DatasetWriter(tmp_path / "data") as writer:
        writer.add(make_episode(0))
        with pytest.raises(DataError, match=message):
            writer.add(change(make_episode(1)))
        writer.add(make_episode(2))
    for actual, i in zip(LeRobotDataset(tmp_path / "data"), (0, 2), strict=True):
        assert_equal(actual, make_episode(i))


def test_number_of_names_must_match_the_size(tmp_path):
    with pytest.raises(DataError, match="state_names has 2 names, the recorded state has size 5"):
        write(tmp_path / "data", [make_episode(0)], state_names=["a", "b"])
