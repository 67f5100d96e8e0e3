"""Looking through a dataset with every kind of fault, and carrying episodes over from any layout.

Each kind is done to one episode here, to ten of five hundred by `python benchmarks/faulty_dataset.py`.
"""

from __future__ import annotations

import faulty
import h5py
import numpy as np
import pytest
from lerobot_v21 import write_v21_dataset
from painted import make_episode, numbers_in, painted, psnr
from test_hdf5 import write_minari, write_robomimic

from embodied_rm.data.convert_dataset import convert_dataset
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.validate import validate_episode
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.run_folder import NullReporter


def test_every_bad_episode_of_a_dataset_is_named_and_no_good_one(tmp_path):
    found = faulty.run_trial(tmp_path, episodes=len(faulty.CORRUPTION_KINDS) + 12, per_kind=1)
    assert found.num_kinds >= 25 and len(found.corrupted) == found.num_kinds
    assert found.reported == found.corrupted, "missed, or named without a reason"
    assert found.altered == [], "images and numbers of sound episodes are those of the undamaged dataset"
    assert found.misreported == [], "each kind is told in its own words, with the episode's file"


def test_what_only_a_full_reading_finds(tmp_path):
    root = write_v21_dataset(tmp_path / "data", [make_episode(i, 60) for i in range(4)])
    faulty.corrupt_packet(root / faulty.video_path(root, 2))
    faulty.set_nan(root / faulty.table_path(root, 1))
    source = open_dataset(root)
    assert source.issues == ()
    faults = [fault for index in range(len(source)) for fault in validate_episode(source, index)]
    assert affected_episodes(faults) == ("episode_000001", "episode_000002")
    assert "observation.state of episode 1 is not finite at frame 30" in str(faults[0])
    assert faults[1].file.name == "episode_000002.mp4"


@pytest.mark.parametrize("layout", ["robomimic", "minari", "v2.1"])
def test_any_layout_becomes_lerobot_v30(tmp_path, layout):
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
            assert psnr(after.views[view], frames) > 38 and numbers_in(after.views[view]) == numbers_in(frames)


def test_what_does_not_fit_is_left_out_by_name(tmp_path):
    for name, size in (("a", (48, 64)), ("b", (24, 32)), ("c", (48, 64))):
        (tmp_path / "in" / name).mkdir(parents=True)
        write_video(tmp_path / "in" / name / "top.mp4", painted(range(8), *size), 10)
    source = open_dataset(tmp_path / "in", "go")
    (fault,) = convert_dataset(source, tmp_path / "out", NullReporter())
    assert fault.episodes == ("b",) and "views is" in str(fault)
    assert [meta.name for meta in LeRobotDataset(tmp_path / "out").meta] == ["a", "c"]
    assert convert_dataset(source, tmp_path / "small", NullReporter(), size=(24, 32)) == []
    with pytest.raises(DataError, match="already exists"):
        convert_dataset(source, tmp_path / "out", NullReporter())


def test_an_odd_row_of_pixels_is_left_out(tmp_path):
    with h5py.File(write_robomimic(tmp_path / "in.hdf5"), "r+") as file:
        for demo in file["data"].values():
            del demo["obs/agentview_image"], demo["obs/robot0_eye_in_hand_image"]
            demo["obs/top_image"] = painted(range(12))[:, :47, :63]
    assert convert_dataset(open_dataset(tmp_path / "in.hdf5"), tmp_path / "out", NullReporter()) == []
    assert LeRobotDataset(tmp_path / "out").image_size(0) == (46, 62)
