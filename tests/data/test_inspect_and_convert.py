"""Looking through a dataset with every kind of fault, and carrying episodes over from any layout.

Each kind is done to one episode here, to ten of five hundred by `python benchmarks/faulty_dataset.py`.
"""

from __future__ import annotations

import faulty
import h5py
import numpy as np
import pytest
from lerobot_v21 import write_v21
from painted import make_episode, numbers_in, painted, psnr
from test_hdf5 import write_minari, write_robomimic

from embodied_rm.data.catalog import open_data
from embodied_rm.data.convert import convert
from embodied_rm.data.faults import named
from embodied_rm.data.inspect import faults_inside
from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.names import Names
from embodied_rm.data.video.files import write_video
from embodied_rm.errors import DataError
from embodied_rm.run import Silent


def test_every_bad_episode_of_a_dataset_is_named_and_no_good_one(tmp_path):
    found = faulty.tried(tmp_path, episodes=len(faulty.KINDS) + 12, of_each=1)
    assert found.kinds >= 25 and len(found.damaged) == found.kinds
    assert found.named == found.damaged, "missed, or named without a reason"
    assert found.different == [], "pictures and numbers of sound episodes are those of the undamaged dataset"
    assert found.untold == [], "each kind is told in its own words, with the episode's file"


def test_what_only_a_full_reading_finds(tmp_path):
    root = write_v21(tmp_path / "data", [make_episode(i, 60) for i in range(4)])
    faulty.flip(root / faulty.film(root, 2))
    faulty.not_finite(root / faulty.rows(root, 1))
    source = open_data(root)
    assert source.faults == ()
    faults = [fault for index in range(len(source)) for fault in faults_inside(source, index)]
    assert named(faults) == ("episode_000001", "episode_000002")
    assert "observation.state of episode 1 is not finite at frame 30" in str(faults[0])
    assert faults[1].file.name == "episode_000002.mp4"


@pytest.mark.parametrize("layout", ["robomimic", "minari", "v2.1"])
def test_any_layout_becomes_lerobot_v30(tmp_path, layout):
    names, instruction = Names(), None
    if layout == "robomimic":
        path = write_robomimic(tmp_path / "in.hdf5")
    elif layout == "minari":
        path, names, instruction = write_minari(tmp_path / "in"), Names(fps=5, views={"pixels": "front"}), "push"
    else:
        path = write_v21(tmp_path / "in", [make_episode(i, 20) for i in range(3)])
    source = open_data(path, instruction, names)
    assert convert(source, tmp_path / "out", Silent()) == []
    written = LeRobotDataset(tmp_path / "out")
    assert written.views == tuple(sorted(source.views)) and written.fps == source.fps
    for before, after in zip(source, written, strict=True):
        assert (after.name, after.instruction, after.success) == (before.name, before.instruction, before.success)
        assert np.array_equal(after.action, before.action) and after.steps == before.steps
        for view, frames in before.views.items():
            assert psnr(after.views[view], frames) > 38 and numbers_in(after.views[view]) == numbers_in(frames)


def test_what_does_not_fit_is_left_out_by_name(tmp_path):
    for name, size in (("a", (48, 64)), ("b", (24, 32)), ("c", (48, 64))):
        (tmp_path / "in" / name).mkdir(parents=True)
        write_video(tmp_path / "in" / name / "top.mp4", painted(range(8), *size), 10)
    source = open_data(tmp_path / "in", "go")
    (fault,) = convert(source, tmp_path / "out", Silent())
    assert fault.episodes == ("b",) and "views is" in str(fault)
    assert [meta.name for meta in LeRobotDataset(tmp_path / "out").meta] == ["a", "c"]
    assert convert(source, tmp_path / "small", Silent(), size=(24, 32)) == []
    with pytest.raises(DataError, match="already exists"):
        convert(source, tmp_path / "out", Silent())


def test_an_odd_row_of_pixels_is_left_out(tmp_path):
    with h5py.File(write_robomimic(tmp_path / "in.hdf5"), "r+") as file:
        for demo in file["data"].values():
            del demo["obs/agentview_image"], demo["obs/robot0_eye_in_hand_image"]
            demo["obs/top_image"] = painted(range(12))[:, :47, :63]
    assert convert(open_data(tmp_path / "in.hdf5"), tmp_path / "out", Silent()) == []
    assert LeRobotDataset(tmp_path / "out").picture_size(0) == (46, 62)
