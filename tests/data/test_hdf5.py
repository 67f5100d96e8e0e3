"""Demonstrations in HDF5 files in the layouts of robomimic and Minari, and damaged files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from painted_frames import paint_frames, read_numbers, replace_by_lfs_pointer, truncate

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.hdf5.file import Hdf5Reader
from embodied_rm.data.issues import affected_episodes
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError, UserError

LENGTH, DEMOS = 12, 3


def write_demo(group: h5py.Group, first_number: int, success: bool, length: int = LENGTH) -> None:
    """A demonstration as written by robosuite's tools."""
    rng = np.random.default_rng(first_number)
    group.attrs["num_samples"] = length
    group.attrs["model_file"] = "<mujoco/>" * 20_000
    group["actions"] = rng.normal(size=(length, 7))
    group["rewards"] = np.eye(length)[-1] * success
    group["states"] = rng.normal(size=(length, 30))
    group["obs/agentview_image"] = paint_frames(range(first_number, first_number + length))
    group["obs/robot0_eye_in_hand_image"] = paint_frames(range(500 + first_number, 500 + first_number + length))
    for name, size in (("robot0_eef_pos", 3), ("robot0_eef_quat", 4), ("robot0_gripper_qpos", 2)):
        group[f"obs/{name}"] = rng.normal(size=(length, size))


def write_robomimic(path: Path, instruction: str | None = "lift the cube") -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 20}})
        if instruction is not None:
            data.attrs["problem_info"] = json.dumps({"language_instruction": instruction})
        for i in (10, 2, 0):
            write_demo(data.create_group(f"demo_{i}"), 100 * (i % 7), success=i != 2)
    return path


def write_minari(folder: Path, mission: str | None = "open the door") -> Path:
    """A dataset as written by Minari 0.5: one more observation than actions, dictionaries as groups."""
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for k in range(DEMOS):
            group = file.create_group(f"episode_{k}")
            group.attrs.update({"id": k, "total_steps": LENGTH, "seed": "None"})
            group["observations/pixels"] = paint_frames(range(100 * k, 100 * k + LENGTH + 1))
            group["observations/arm"] = np.arange((LENGTH + 1) * 2.0).reshape(-1, 2)
            if mission is not None:
                group["observations/mission"] = [f"{mission} {k}"] * (LENGTH + 1)
            group["actions"] = np.arange(LENGTH * 4.0).reshape(-1, 4)
            group["rewards"] = np.zeros(LENGTH)
            group["infos/success"] = np.arange(LENGTH + 1) >= (LENGTH if k else LENGTH + 1)
    return folder


@pytest.fixture
def lift(tmp_path: Path) -> Path:
    return write_robomimic(tmp_path / "lift.hdf5")


def test_robomimic(lift):
    source = open_dataset(lift)
    assert source.views == ("agentview", "robot0_eye_in_hand") and source.fps == 20 and source.issues == ()
    assert [meta.name for meta in source.meta] == ["demo_0", "demo_2", "demo_10"]
    assert [meta.success for meta in source.meta] == [True, False, True]
    for episode, first_number in zip(source, (0, 200, 300), strict=True):
        assert read_numbers(episode.views["agentview"]) == list(range(first_number, first_number + LENGTH))
        assert read_numbers(episode.views["robot0_eye_in_hand"]) == list(
            range(500 + first_number, 500 + first_number + LENGTH)
        )
        assert episode.instruction == "lift the cube"
        assert episode.state.shape == (LENGTH, 9) and episode.action.shape == (LENGTH, 7)
    with h5py.File(lift) as file:
        stored = file["data/demo_2/obs/robot0_eef_quat"][()]
        assert np.array_equal(source.episode(1).state[:, 3:7], stored.astype(np.float32))


def test_rewards_that_are_0_everywhere_leave_success_unknown(lift):
    """Recorders of human demonstrations write such rewards."""
    with h5py.File(lift, "a") as file:
        for demo in file["data"].values():
            demo["rewards"][:] = 0
    source = open_dataset(lift)
    assert [meta.success for meta in source.meta] == [None] * 3
    assert [issue.message for issue in source.issues] == [
        "every reward is 0, so the success of its episodes is unknown"
    ]


def test_dense_rewards_leave_success_unknown(lift):
    with h5py.File(lift, "a") as file:
        for demo in file["data"].values():
            demo["rewards"][:] = np.linspace(0, 1, LENGTH)
    source = open_dataset(lift)
    assert [meta.success for meta in source.meta] == [None] * 3 and source.issues == ()


@pytest.mark.parametrize("key", ["lang", "language_instruction", "instruction"])
@pytest.mark.parametrize("in_file", [None, "do something"])
def test_each_demonstration_has_its_own_instruction(tmp_path, key, in_file):
    path = write_robomimic(tmp_path / "kitchen.hdf5", in_file)
    with h5py.File(path, "a") as file:
        for name, demo in file["data"].items():
            demo.attrs["ep_meta"] = json.dumps({"layout_id": 3, key: f"open drawer {name}"})
    expected = ["open drawer demo_0", "open drawer demo_2", "open drawer demo_10"]
    assert [meta.instruction for meta in open_dataset(path).meta] == expected
    assert open_dataset(path, "go").meta[0].instruction == "go"


def test_an_instruction_among_the_attributes_is_read(tmp_path):
    path = write_robomimic(tmp_path / "attributes.hdf5", None)
    with h5py.File(path, "a") as file:
        file["data/demo_0"].attrs["language_instruction"] = "lift it"
    source = open_dataset(path)
    assert [meta.instruction for meta in source.meta] == ["lift it"]
    assert {"demo_2 contains no instruction", "demo_10 contains no instruction"} == {
        issue.message.split(";")[0] for issue in source.issues
    }


def test_feature_map(lift):
    names = FeatureMap(views={"robot0_eye_in_hand": "wrist"}, state=("obs/robot0_eef_pos", "states"), fps=10)
    source = open_dataset(lift, feature_map=names)
    episode = source.episode(0, size=(12, 16), stride=5)
    assert source.views == ("wrist",) and episode.views["wrist"].shape == (4, 12, 16, 3)
    assert episode.state.shape == (4, 33) and episode.fps == 2.0
    with pytest.raises(DataError, match=r"lift.hdf5: demo_0: unknown view 'wrong'.*Available: agentview"):
        open_dataset(lift, feature_map=FeatureMap(views={"wrong": "wrist"}))
    with pytest.raises(DataError, match=r"unknown column 'obs/robot0_eef_po'.*Did you mean 'obs/robot0_eef_pos'"):
        open_dataset(lift, feature_map=FeatureMap(state=("obs/robot0_eef_po",)))


def test_read_frames(lift):
    source = open_dataset(lift)
    views = source.read_frames(2, 3, 7, views=["robot0_eye_in_hand"], size=(48, 64))
    assert views.frames.shape == (4, 1, 48, 64, 3)
    assert read_numbers(views.frames[:, 0]) == [803, 804, 805, 806]


def test_folder_of_files_is_one_dataset(tmp_path):
    write_robomimic(tmp_path / "a.hdf5", "do a")
    write_robomimic(tmp_path / "b.h5", "do b")
    replace_by_lfs_pointer(tmp_path / "c.hdf5")
    source = open_dataset(tmp_path)
    assert [meta.name for meta in source.meta][2:4] == ["a/demo_10", "b/demo_0"]
    assert {meta.instruction for meta in source.meta} == {"do a", "do b"}
    (issue,) = source.issues
    assert "c.hdf5: this is a git-lfs pointer" in str(issue)


def test_minari(tmp_path):
    source = open_dataset(write_minari(tmp_path / "doors"), feature_map=FeatureMap(fps=5))
    assert source.views == ("pixels",) and len(source) == DEMOS
    assert [meta.success for meta in source.meta] == [False, True, True]
    for k, episode in enumerate(source):
        assert read_numbers(episode.views["pixels"]) == list(range(100 * k, 100 * k + LENGTH + 1))
        assert episode.instruction == f"open the door {k}" and episode.fps == 5 and episode.state is None
        assert np.array_equal(episode.action[-1], episode.action[-2]) and len(episode.action) == LENGTH + 1
    episode = open_dataset(tmp_path / "doors", "push", FeatureMap(fps=5, state=("observations/arm",))).episode(0)
    assert episode.instruction == "push" and episode.state[3].tolist() == [6, 7]


def test_missing_instruction_and_frame_rate_are_reported(tmp_path):
    no_instruction = write_robomimic(tmp_path / "silent.hdf5", None)
    with pytest.raises(DataError, match=r"silent.hdf5: contains no instruction; set instruction="):
        open_dataset(no_instruction)
    assert open_dataset(no_instruction, "lift it").meta[0].instruction == "lift it"
    with pytest.raises(DataError, match=r"stores no frame rate; set features\.fps"):
        open_dataset(write_minari(tmp_path / "doors"))
    with pytest.raises(DataError, match="contains no instruction for episode_0"):
        open_dataset(write_minari(tmp_path / "no_instruction", None), feature_map=FeatureMap(fps=5))


def edit_file(change: Callable[[h5py.File], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file)

    return damage


def replace_dataset(name: str, values: object) -> Callable[[Path], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = values

    return edit_file(change)


def link_to_other_file(file: h5py.File) -> None:
    del file["data/demo_2/obs/agentview_image"]
    file["data/demo_2/obs/agentview_image"] = h5py.ExternalLink("other.hdf5", "/data/demo_0/obs/agentview_image")


def store_externally(file: h5py.File) -> None:
    del file["data/demo_2/obs/agentview_image"]
    shape = (LENGTH, 48, 64, 3)
    size = int(np.prod(shape))
    external = [("/proc/self/environ", 0, size)]
    file.create_dataset("data/demo_2/obs/agentview_image", shape, np.uint8, external=external)


def make_virtual(file: h5py.File) -> None:
    del file["data/demo_2/obs/agentview_image"]
    layout = h5py.VirtualLayout((LENGTH, 48, 64, 3), np.uint8)
    layout[:] = h5py.VirtualSource("other.hdf5", "images", (LENGTH, 48, 64, 3))
    file.create_virtual_dataset("data/demo_2/obs/agentview_image", layout)


def claim_many_rows(file: h5py.File) -> None:
    for view in ("agentview_image", "robot0_eye_in_hand_image"):
        del file[f"data/demo_2/obs/{view}"]
        shape = (10**9, 48, 64, 3)
        file.create_dataset(f"data/demo_2/obs/{view}", shape, np.uint8, chunks=(1, 48, 64, 3))


def set_env_args(text: str) -> Callable[[Path], object]:
    return edit_file(lambda file: file["data"].attrs.update(env_args=text))


def claim_a_few_rows(file: h5py.File) -> None:
    """A recorder that ended early: the file has room for more images than were written."""
    group = file["data/demo_2/obs"]
    group.pop("agentview_image")
    images = group.create_dataset("agentview_image", (LENGTH, 48, 64, 3), np.uint8, chunks=(1, 48, 64, 3))
    images[: LENGTH - 1] = 1


def nest_groups(file: h5py.File) -> None:
    file.create_group("data/demo_2/" + "/".join("abcdefghij"))


RATE = '{"env_kwargs": {"control_freq": %s}}'
CORRUPTIONS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no images": (edit_file(lambda file: file.pop("data/demo_2/obs")), "demo_2 contains no images", "demo_2"),
    "images are short": (
        replace_dataset("data/demo_2/obs/robot0_eye_in_hand_image", paint_frames(range(5))),
        "robot0_eye_in_hand_image of demo_2 has 5 rows, its images have 12",
        "demo_2",
    ),
    "actions are short": (
        replace_dataset("data/demo_2/actions", np.zeros((11, 7))),
        "actions of demo_2 has 11",
        "demo_2",
    ),
    "actions are one number": (replace_dataset("data/demo_2/actions", 3.0), "actions of demo_2 has 0 rows", "demo_2"),
    "count is off": (
        edit_file(lambda file: file["data/demo_2"].attrs.update(num_samples=13)),
        "num_samples of demo_2 has 13 rows",
        "demo_2",
    ),
    "a link to another file": (edit_file(link_to_other_file), "agentview_image is a link to another file", "lift"),
    "nested groups": (edit_file(nest_groups), "nested deeper than 8", "lift"),
    "settings are a list": (
        edit_file(lambda file: file["data"].attrs.update(env_args='{"env_kwargs": [1]}')),
        "stores no frame rate",
        "lift",
    ),
    "a rate of 400 digits": (set_env_args(RATE % ("1" + "0" * 400)), "states the frame rate 1000", "lift"),
    "an infinite rate": (set_env_args(RATE % "Infinity"), "states the frame rate inf", "lift"),
    "nested settings": (set_env_args("[" * 30_000 + "]" * 30_000), "stores no frame rate", "lift"),
    "half of a character": (
        edit_file(lambda file: file["data/demo_2"].attrs.update(ep_meta='{"lang": "a\\ud800b"}')),
        "which is half of one",
        "demo_2",
    ),
    "images that were not written": (edit_file(claim_a_few_rows), "not all of them were written", "demo_2"),
    "images claimed but not stored": (edit_file(claim_many_rows), "demo_2 contains no images", "demo_2"),
    "cut short": (lambda path: truncate(path, path.stat().st_size // 2), "cannot be decoded", "lift"),
    "no HDF5": (lambda path: path.write_bytes(b"\x89PNG" * 100), "cannot be decoded", "lift"),
    "a pointer": (replace_by_lfs_pointer, "git-lfs pointer", "lift"),
    "no demonstrations": (edit_file(lambda file: file.pop("data")), "holds no demonstrations", "lift"),
}


@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_issue_is_named_and_excludes_only_affected_episodes(lift, corruption):
    damage, message, affected = CORRUPTIONS[corruption]
    damage(lift)
    write_robomimic(lift.with_name("valid.hdf5"), "go")
    source = open_dataset(lift.parent)
    (issue,) = source.issues
    assert message in str(issue) and "lift.hdf5" in str(issue) and "\n" not in str(issue)
    assert affected_episodes(source.issues) == (affected if affected == "lift" else f"lift/{affected}",)
    assert len(source) == (3 if affected == "lift" else 5)
    assert all(len(episode) == LENGTH for episode in source)


@pytest.mark.parametrize("change", [store_externally, make_virtual])
def test_images_in_another_file_are_rejected(lift, change):
    edit_file(change)(lift)
    with pytest.raises(DataError, match="lies in another file"):
        open_dataset(lift).episode(1)


def test_non_numeric_columns_are_rejected(lift):
    replace_dataset("data/demo_2/actions", [b"a"] * LENGTH)(lift)
    with pytest.raises(DataError, match="rows of numbers were expected"):
        open_dataset(lift).episode(1)


def test_flipped_bytes_raise_an_error_or_are_read(lift):
    content = lift.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        damaged = bytearray(content)
        for position in rng.integers(0, 4096, 8):
            damaged[position] = rng.integers(256)
        lift.write_bytes(damaged)
        try:
            for episode in open_dataset(lift):
                assert len(episode) == LENGTH
        except DataError as error:
            assert "lift.hdf5" in str(error)


def test_unusual_attributes_are_ignored(lift):
    with h5py.File(lift, "r+") as file:
        file["data/demo_2"].attrs["odd"] = np.array((1, b"x"), dtype=[("a", "i4"), ("b", "S1")])
        file["data/demo_2"].attrs["odder"] = np.void(b"abc")
    assert len(open_dataset(lift)) == 3


def test_missing_h5py_names_the_extra(lift, monkeypatch):
    monkeypatch.setattr("embodied_rm.data.hdf5.file.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"embodied-rm\[hdf5\]"):
        Hdf5Reader()


def test_dot_files_are_no_demonstrations_and_suffixes_have_any_case(lift):
    lift.rename(lift.with_name("lift.HDF5"))
    (lift.parent / "._lift.HDF5").write_bytes(b"written by a file system")
    source = open_dataset(lift.parent)
    assert source.issues == () and source.meta[0].name == "demo_0"


def rename_images(path: Path) -> None:
    """Name the images as LIBERO does."""
    with h5py.File(path, "a") as file:
        for demo in file["data"].values():
            for camera in ("agentview", "robot0_eye_in_hand"):
                demo.move(f"obs/{camera}_image", f"obs/{camera}_rgb")


def test_images_of_libero_are_flipped_unless_the_user_says_otherwise(lift):
    upright = open_dataset(lift).episode(0).views["agentview"]
    rename_images(lift)
    source = open_dataset(lift)
    assert "LIBERO stores its images from below" in str(source.issues[0])
    assert np.array_equal(source.episode(0).views["agentview"], upright[:, ::-1])
    stored = open_dataset(lift, feature_map=FeatureMap(orientation={"agentview": "stored"})).episode(0).views
    assert np.array_equal(stored["agentview"], upright)
    assert np.array_equal(stored["robot0_eye_in_hand"], source.episode(0).views["robot0_eye_in_hand"])


@pytest.mark.parametrize("instruction", [None])
def test_images_of_others_with_such_names_are_as_stored(tmp_path, instruction):
    path = write_robomimic(tmp_path / "real.hdf5", instruction)
    upright = open_dataset(path, "go").episode(0).views["agentview"]
    rename_images(path)
    assert np.array_equal(open_dataset(path, "go").episode(0).views["agentview"], upright)


TURNED = {
    "flip": lambda frames: frames[:, ::-1],
    "mirror": lambda frames: frames[:, :, ::-1],
    "rotate_90": lambda frames: np.rot90(frames, -1, axes=(1, 2)),
    "rotate_180": lambda frames: frames[:, ::-1, ::-1],
    "rotate_270": lambda frames: np.rot90(frames, 1, axes=(1, 2)),
    "stored": lambda frames: frames,
}


@pytest.mark.parametrize("orientation", TURNED)
def test_images_are_turned_as_the_user_says(lift, orientation):
    stored = open_dataset(lift)
    feature_map = FeatureMap(views={"agentview": "front"}, orientation={"front": orientation})
    source = open_dataset(lift, feature_map=feature_map)
    expected = TURNED[orientation](stored.episode(0).views["agentview"])
    assert np.array_equal(source.episode(0).views["front"], expected)
    assert source.image_size(0) == expected.shape[1:3]
    block = source.read_frames(0, 2, 5, views=["front"], size=expected.shape[1:3])
    assert np.array_equal(block.frames[:, 0], expected[2:5])


def test_unknown_orientations_and_views_are_refused(lift):
    with pytest.raises(UserError, match=r"unknown orientation of front 'flipped'. Did you mean 'flip'"):
        FeatureMap(orientation={"front": "flipped"})
    with pytest.raises(DataError, match=r"unknown view 'front'.*Available: agentview"):
        open_dataset(lift, feature_map=FeatureMap(orientation={"front": "flip"}))
