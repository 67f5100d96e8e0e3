"""Validation of a dataset with every kind of corruption, and conversion of every layout.

Each kind is done to one episode here, to ten of five hundred by `python benchmarks/corrupted_dataset.py`.
"""

from __future__ import annotations

import corruptions
import h5py
import numpy as np
import pytest
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode, paint_frames, psnr, read_numbers
from test_hdf5 import write_minari, write_robomimic

from embodied_rm.data.block_reader import validate_episode
from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.run_folder import NullReporter


def test_exactly_the_corrupted_episodes_are_reported(tmp_path):
    trial = corruptions.run_trial(tmp_path, episodes=len(corruptions.CORRUPTION_KINDS) + 12, per_kind=1)
    assert trial.num_kinds >= 25 and len(trial.corrupted) == trial.num_kinds
    assert trial.reported == trial.corrupted, "missed, or reported without a reason"
    assert trial.altered == [], "valid episodes are unchanged"
    assert trial.misreported == [], "each kind has its own message and names the file of the episode"


def test_full_validation_finds_undecodable_and_nonfinite_frames(tmp_path):
    root = write_v21_dataset(tmp_path / "data", [make_episode(i, 60) for i in range(4)])
    corruptions.corrupt_packet(root / corruptions.video_path(root, 2))
    corruptions.set_nan(root / corruptions.table_path(root, 1))
    source = open_dataset(root)
    assert source.issues == ()
    found = [issue for index in range(len(source)) for issue in validate_episode(source, index)]
    issues = [issue for issue in found if not issue.is_note]  # both views show the same images
    assert affected_episodes(issues) == ("episode_000001", "episode_000002")
    assert "observation.state of episode 1 is not finite at frame 30" in str(issues[0])
    assert issues[1].file.name == "episode_000002.mp4"


@pytest.mark.parametrize("layout", ["robomimic", "minari", "v2.1"])
def test_every_layout_converts_to_lerobot_v30(tmp_path, layout):
    names, instruction = FeatureMap(), None
    if layout == "robomimic":
        path = write_robomimic(tmp_path / "in.hdf5")
    elif layout == "minari":
        path, names, instruction = write_minari(tmp_path / "in"), FeatureMap(fps=5, views={"pixels": "front"}), "push"
    else:
        path = write_v21_dataset(tmp_path / "in", [make_episode(i, 20) for i in range(3)])
    source = open_dataset(path, instruction, names)
    assert convert_dataset(source, tmp_path / "out", NullReporter()) == []
    written = LeRobotDataset(tmp_path / "out")
    assert written.views == tuple(sorted(source.views)) and written.fps == source.fps
    for before, after in zip(source, written, strict=True):
        assert (after.name, after.instruction, after.success) == (before.name, before.instruction, before.success)
        assert np.array_equal(after.action, before.action) and after.subtasks == before.subtasks
        for view, frames in before.views.items():
            assert psnr(after.views[view], frames) > 38 and read_numbers(after.views[view]) == read_numbers(frames)


def test_odd_image_sizes_are_cropped(tmp_path):
    with h5py.File(write_robomimic(tmp_path / "in.hdf5"), "r+") as file:
        for demo in file["data"].values():
            del demo["obs/agentview_image"], demo["obs/robot0_eye_in_hand_image"]
            demo["obs/top_image"] = paint_frames(range(12))[:, :47, :63]
    assert convert_dataset(open_dataset(tmp_path / "in.hdf5"), tmp_path / "out", NullReporter()) == []
    assert LeRobotDataset(tmp_path / "out").image_size(0) == (46, 62)
