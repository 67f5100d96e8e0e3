"""Recordings in folders: real ones, and mismatches between the files of a recording."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from painted_frames import paint_frames, read_numbers, replace_by_lfs_pointer, truncate
from real_data import REAL_DATA

from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.recordings.recording import Recording, find_recording
from embodied_rm.data.recordings.recording_dataset import RecordingDataset
from embodied_rm.data.source import stride_indices
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.types import Subtask

REAL = REAL_DATA / "real_bimanual"
LENGTH = 30


def annotation_entry(start: object, end: object, name: str = "reach") -> dict[str, object]:
    return {"annotation": name, "start_frame_id": start, "end_frame_id": end}


@pytest.fixture
def folder(tmp_path) -> Path:
    """A small annotated recording of two views with its instruction."""
    path = tmp_path / "trial_7"
    path.mkdir()
    write_video(path / "top.mp4", paint_frames(range(LENGTH)), 10)
    write_video(path / "wrist.mp4", paint_frames(range(500, 500 + LENGTH)), 10)
    subtasks = [annotation_entry(2, 11), annotation_entry(11, 20, "lift"), annotation_entry(20, 29, "put")]
    (path / "annotated_keyframes.json").write_text(json.dumps(subtasks))
    (path / "task_instruction.json").write_text('["put the cube away", "tidy up"]')
    return path


def test_real_recordings():
    source = open_dataset(REAL)
    assert [meta.name for meta in source.meta] == ["episode_001", "episode_002"]
    assert [meta.length for meta in source.meta] == [1277, 1715]
    assert set(source.views) == {"cam_high", "cam_left_wrist", "cam_right_wrist"}
    for meta in source.meta:
        assert len(meta.subtasks) == 16 and meta.success is None
        assert meta.instruction == "clean the table"
    assert source.meta[0].subtasks[0] == Subtask(name="subtask1", start=8, end=147)
    for i, length in enumerate((1277, 1715)):
        episode = source.episode(i, views=["cam_high"], size=(72, 96), stride=15)
        frame_indices = stride_indices(length, 15)
        assert episode.views["cam_high"].shape == (len(frame_indices), 72, 96, 3)
        assert len(episode.subtasks) == 16 and episode.fps == 2.0
        for resampled, stored in zip(episode.subtasks, source.meta[i].subtasks, strict=True):
            assert stored.start <= frame_indices[resampled.start] < stored.start + 15
            assert stored.end <= frame_indices[resampled.end] < stored.end + 15
        # the scene moves, and no frame is black or differs sharply from its neighbors
        changes = np.abs(np.diff(episode.views["cam_high"].astype(float), axis=0)).mean((1, 2, 3))
        assert 0.1 < np.median(changes) < 20 and changes.max() < 40


def test_folder_is_an_episode(folder):
    source = open_dataset(folder)
    (episode,) = source
    assert (len(source), source.fps, source.views) == (1, 10.0, ("top", "wrist"))
    assert episode.name == "trial_7" and episode.instruction == "put the cube away"
    assert read_numbers(episode.views["top"]) == list(range(LENGTH))
    assert read_numbers(episode.views["wrist"]) == list(range(500, 500 + LENGTH))
    assert [(subtask.name, subtask.start, subtask.end) for subtask in episode.subtasks] == [
        ("reach", 2, 11),
        ("lift", 11, 20),
        ("put", 20, 29),
    ]


@pytest.mark.parametrize("stride", [2, 7, 9])
def test_stride_applies_to_frames_and_subtasks(folder, stride):
    episode = open_dataset(folder).episode(0, stride=stride)
    frame_indices = [int(k) for k in stride_indices(LENGTH, stride)]
    assert read_numbers(episode.views["top"]) == frame_indices
    for subtask, (start, end) in zip(episode.subtasks, [(2, 11), (11, 20), (20, 29)], strict=True):
        assert frame_indices[subtask.start : subtask.end] == [k for k in frame_indices if start <= k < end]


def test_recording_from_explicit_files(folder):
    recording = Recording(name="mine", videos={"left": folder / "wrist.mp4"}, instruction="do it")
    (episode,) = RecordingDataset([recording])
    assert list(episode.views) == ["left"] and episode.subtasks == () and episode.instruction == "do it"


def test_instruction_overrides_stored_one_and_missing_one_is_reported(folder):
    assert open_dataset(folder, instruction="wipe").meta[0].instruction == "wipe"
    (folder / "task_instruction.json").rename(folder.parent / "task_instruction.json")
    assert open_dataset(folder).meta[0].instruction == "put the cube away"
    (folder.parent / "task_instruction.json").unlink()
    with pytest.raises(DataError, match=r"trial_7: no instruction.*task_instruction\.json"):
        open_dataset(folder)


@pytest.mark.parametrize("frames", [LENGTH - 2, LENGTH + 2])
def test_views_of_different_length_are_named(folder, frames):
    write_video(folder / "wrist.mp4", paint_frames(range(frames)), 10)
    with pytest.raises(
        DataError, match=rf"wrist\.mp4: has {frames} frames, but its sibling view .*top\.mp4 has {LENGTH}"
    ):
        open_dataset(folder)


@pytest.mark.parametrize(("frames", "longer"), [(LENGTH - 1, "top"), (LENGTH + 1, "wrist")])
def test_a_frame_too_many_at_the_end_is_left_out_and_reported(folder, frames, longer):
    write_video(folder / "wrist.mp4", paint_frames(range(frames)), 10)
    source = open_dataset(folder)
    shortest = min(frames, LENGTH)
    (note,) = source.issues
    assert note.is_note and note.file == folder / f"{longer}.mp4"
    assert note.message == f"has {shortest + 1} frames, another view has {shortest}: the last 1 left out"
    (episode,) = source
    assert read_numbers(episode.views["wrist"]) == list(range(shortest))
    assert {len(images) for images in episode.views.values()} == {source.meta[0].length} == {shortest}
    assert episode.subtasks[-1].end == min(29, shortest)


def test_at_a_high_rate_a_tenth_of_a_second_is_left_out(folder):
    for view, frames in (("top", 60), ("wrist", 63)):
        write_video(folder / f"{view}.mp4", paint_frames(range(frames)), 30)
    assert open_dataset(folder).meta[0].length == 60
    write_video(folder / "wrist.mp4", paint_frames(range(64)), 30)
    with pytest.raises(DataError, match="has 64 frames, but its sibling view"):
        open_dataset(folder)


def test_views_of_different_rate_are_named(folder):
    write_video(folder / "wrist.mp4", paint_frames(range(LENGTH)), 20)
    with pytest.raises(
        DataError, match=r"wrist\.mp4: has 20 frames per second, but its sibling view .*top\.mp4 has 10"
    ):
        open_dataset(folder)


@pytest.mark.parametrize(
    "damage", [Path.unlink, replace_by_lfs_pointer, lambda p: p.write_bytes(b""), lambda p: truncate(p, 3000)]
)
def test_damaged_view_is_named(folder, damage):
    recording = find_recording(folder)
    damage(folder / "wrist.mp4")
    with pytest.raises(DataError, match=r"wrist\.mp4"):
        RecordingDataset([recording])


@pytest.mark.parametrize(
    ("subtasks", "message"),
    [
        ('[{"annotation"', "not valid JSON"),
        ("{}", "a JSON list"),
        ([annotation_entry(5, 5)], "0 <= start < end"),
        ([annotation_entry(-1, 5)], "0 <= start < end"),
        ([annotation_entry(3, LENGTH + 1)], f"ends at frame {LENGTH + 1}, the videos have {LENGTH}"),
        ([annotation_entry(3, 9), annotation_entry(8, 12, "lift")], "'lift' starts at 8, before 'reach' ends"),
        ([{"annotation": "reach", "start_frame_id": 1}], "entry 0: it lacks or misstates 'end_frame_id'"),
        ([annotation_entry(1, 2), "reach"], "entry 1"),
        ([annotation_entry("soon", 2)], "entry 0"),
        ([annotation_entry(0.7, 3.9)], "entry 0: it lacks or misstates a frame number (a frame is 0.7)"),
        ([annotation_entry(0, True)], "entry 0: it lacks or misstates a frame number (a frame is True)"),
    ],
)
def test_invalid_annotation_is_named(folder, subtasks, message):
    path = folder / "annotated_keyframes.json"
    path.write_text(subtasks if isinstance(subtasks, str) else json.dumps(subtasks))
    with pytest.raises(DataError) as caught:
        open_dataset(folder)
    assert "annotated_keyframes.json" in str(caught.value) and message in str(caught.value)


@pytest.mark.parametrize(
    "outcome", [{"is_success": True}, {"outcome": "success"}, {"success": 1.0, "outcome": "drop"}, {"success": [True]}]
)
def test_an_outcome_has_the_names_and_values_of_other_layouts(folder, outcome):
    (folder / "success.json").write_text(json.dumps(outcome))
    assert open_dataset(folder).meta[0].success is True


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ({"Success": False}, r"success\.json: has Success: not read, success, next\.success"),
        ({"outcome": "drop"}, r"success\.json: outcome is 'drop'; true or false was expected"),
    ],
)
def test_an_outcome_that_is_not_read_is_named(folder, outcome, message):
    (folder / "success.json").write_text(json.dumps(outcome))
    with pytest.raises(DataError, match=message):
        open_dataset(folder)


def test_recordings_without_common_view_are_rejected(folder):
    other = Recording(name="other", videos={"side": folder / "top.mp4"}, instruction="x")
    with pytest.raises(DataError, match="no view in common; it has top, wrist"):
        RecordingDataset([find_recording(folder), other])


def test_layouts_are_distinguished(folder, tmp_path):
    with DatasetWriter(tmp_path / "lerobot") as writer:
        writer.add(next(iter(open_dataset(folder))))
    stored = open_dataset(tmp_path / "lerobot")
    assert isinstance(stored, LeRobotDataset) and stored.meta[0].subtasks == open_dataset(folder).meta[0].subtasks
    for path, count in ((folder, 1), (tmp_path, 1)):
        source = open_dataset(path)
        assert isinstance(source, RecordingDataset) and len(source) == count


def test_unknown_layout_lists_the_supported_ones(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"meta/info\.json .* nor <view>\.mp4 .* nor <episode>/<view>\.mp4"):
        open_dataset(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        open_dataset(tmp_path / "absent")
    with pytest.raises(DataError, match="is neither a folder nor a file of a known format"):
        open_dataset(tmp_path / "notes.txt")


def test_instruction_for_a_lerobot_dataset_is_rejected(folder, tmp_path):
    with DatasetWriter(tmp_path / "lerobot") as writer:
        writer.add(next(iter(open_dataset(folder))))
    with pytest.raises(DataError, match="has its own instructions; got 'wipe'"):
        open_dataset(tmp_path / "lerobot", instruction="wipe")
