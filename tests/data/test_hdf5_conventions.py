"""What writers of HDF5 files mean by their rewards, instructions and images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_hdf5 import LENGTH, write_robomimic

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError

ONE_IS_1 = [True, False, True]  # successes of `write_robomimic`
UNKNOWN = [None] * 3
ENV_ARGS = {"env_name": "Lift", "env_kwargs": {"control_freq": 20}}
LONG_TEXT = "x" * 70_000  # longer than an attribute that is read whole


def edit(path: Path, change: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "a") as file:
        change(file)
    return path


def set_rewards(path: Path, rewards: object) -> Path:
    def change(file: h5py.File) -> None:
        for demo in file["data"].values():
            demo["rewards"][:] = rewards

    return edit(path, change)


def set_env_args(path: Path, env_args: object) -> Path:
    return edit(path, lambda file: file["data"].attrs.update(env_args=json.dumps(env_args)))


def successes(source: EpisodeSource, file: str) -> list[bool | None]:
    return [meta.success for meta in source.meta if meta.name.startswith(f"{file}/")]


def messages(source: EpisodeSource) -> list[str]:
    assert all(issue.episodes == () for issue in source.issues), "nothing is left out"
    return [issue.message for issue in source.issues]


# Rewards


def test_failures_in_a_file_of_their_own_are_failures(tmp_path):
    """Both files are of one recorder, whatever the order of the keys in its settings."""
    write_robomimic(tmp_path / "success.hdf5")
    failures = set_rewards(write_robomimic(tmp_path / "failures.hdf5"), 0)
    set_env_args(failures, dict(reversed(ENV_ARGS.items())))
    source = open_dataset(tmp_path)
    assert successes(source, "success") == ONE_IS_1 and successes(source, "failures") == [False] * 3
    assert messages(source) == [
        "failures.hdf5: every reward is 0, unlike in other files of its env_args: its episodes are failures"
    ]


@pytest.mark.parametrize("env_args", [{**ENV_ARGS, "env_name": "Stack"}, {**ENV_ARGS, "type": 2}, None])
def test_rewards_that_another_recorder_never_set_say_nothing(env_args, tmp_path):
    """Human demonstrations beside generated ones, or another task."""
    write_robomimic(tmp_path / "generated.hdf5")
    human = set_rewards(write_robomimic(tmp_path / "human.hdf5"), 0)
    if env_args is None:
        edit(human, lambda file: file["data"].attrs.pop("env_args"))
    else:
        set_env_args(human, env_args)
    source = open_dataset(tmp_path, feature_map=FeatureMap(fps=20))
    assert successes(source, "generated") == ONE_IS_1 and successes(source, "human") == UNKNOWN
    assert messages(source) == ["human.hdf5: every reward is 0, so the success of its episodes is unknown"]


def test_a_file_per_demonstration_is_read_like_one_file(tmp_path):
    whole = write_robomimic(tmp_path / "whole.hdf5")
    (tmp_path / "parts").mkdir()
    with h5py.File(whole) as file:
        for name, demo in file["data"].items():
            with h5py.File(tmp_path / "parts" / f"{name}.hdf5", "w") as part:
                part.create_group("data").attrs.update(file["data"].attrs)
                file.copy(demo, part["data"])
    source = open_dataset(tmp_path / "parts")
    assert {meta.name.split("/")[1]: meta.success for meta in source.meta} == {
        meta.name: meta.success for meta in open_dataset(whole).meta
    }


@pytest.mark.parametrize("rewards", [np.linspace(0, 0.9, LENGTH), -np.eye(LENGTH)[0], np.full(LENGTH, 10.0)])
def test_other_rewards_leave_success_unknown_without_a_note(rewards, tmp_path):
    write_robomimic(tmp_path / "sparse.hdf5")
    set_rewards(write_robomimic(tmp_path / "dense.hdf5"), rewards)
    source = open_dataset(tmp_path)
    assert successes(source, "dense") == UNKNOWN and successes(source, "sparse") == ONE_IS_1 and source.issues == ()


def test_a_reward_that_is_lost_again_is_a_failure(tmp_path):
    path = set_rewards(write_robomimic(tmp_path / "lost.hdf5"), np.eye(LENGTH)[5])
    source = open_dataset(path)
    assert [meta.success for meta in source.meta] == [False] * 3 and source.issues == ()


# Instructions


def set_ep_meta(path: Path, ep_meta: str, demo: str = "demo_2") -> Path:
    return edit(path, lambda file: file[f"data/{demo}"].attrs.update(ep_meta=ep_meta))


@pytest.mark.parametrize(
    "ep_meta",
    [
        {"lang": "open it", "object_cfgs": [{"name": LONG_TEXT}]},
        {"scene": {"model": LONG_TEXT}, "lang": "open it"},
        {"lang": " open it ", "notes": [1] * 40_000},
    ],
)
def test_the_instruction_of_a_large_ep_meta_is_read(ep_meta, tmp_path):
    """RoboCasa stores the configuration of all objects beside it."""
    path = set_ep_meta(write_robomimic(tmp_path / "kitchen.hdf5", "do something"), json.dumps(ep_meta))
    source = open_dataset(path)
    assert [meta.instruction for meta in source.meta] == ["do something", "open it", "do something"]
    assert source.issues == ()


def test_large_settings_are_read(tmp_path):
    path = write_robomimic(tmp_path / "lift.hdf5")
    set_env_args(path, {**ENV_ARGS, "env_kwargs": {"control_freq": 10, "scene": LONG_TEXT}})
    assert open_dataset(path).fps == 10


UNREADABLE = {
    "blank": ('{"lang": ""}', "lang is ''"),
    "only spaces": ('{"lang": "  "}', "lang is '  '"),
    "null": ('{"language": null}', "language is None"),
    "a list": ('{"lang": ["open", "it"]}', "lang is ['open', 'it']"),
    "no JSON": ("open it", "ep_meta is not a JSON object"),
    "no object": ('["open it"]', "ep_meta is not a JSON object"),
    "long, and no JSON": (LONG_TEXT, "ep_meta is not a JSON object"),
    "long, and no object": (json.dumps([LONG_TEXT]), "ep_meta is not a JSON object"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_instruction_that_cannot_be_read_is_replaced_by_that_of_the_file(kind, tmp_path):
    ep_meta, reason = UNREADABLE[kind]
    path = set_ep_meta(write_robomimic(tmp_path / "kitchen.hdf5", "do something"), ep_meta)
    set_ep_meta(path, ep_meta, "demo_10")
    source = open_dataset(path)
    assert {meta.instruction for meta in source.meta} == {"do something"}
    assert messages(source) == [f"{reason} in demo_2, demo_10, so the instruction of the file, 'do something', is used"]
    assert open_dataset(path, "open it").issues == ()


def test_a_blank_instruction_is_left_out_where_the_file_has_none(tmp_path):
    path = write_robomimic(tmp_path / "kitchen.hdf5", None)
    for demo, text in (("demo_0", "open it"), ("demo_2", " "), ("demo_10", "close it")):
        set_ep_meta(path, json.dumps({"lang": text}), demo)
    source = open_dataset(path)
    assert [meta.instruction for meta in source.meta] == ["open it", "close it"]
    (issue,) = source.issues
    assert issue.episodes == ("demo_2",) and "contains no instruction (lang is ' '); set instruction=" in issue.message


@pytest.mark.parametrize("text", ["", "  ", '""', []])
def test_a_file_with_a_blank_instruction_has_none(text, tmp_path):
    path = write_robomimic(tmp_path / "lift.hdf5")
    edit(path, lambda file: file["data"].attrs.update(problem_info=json.dumps({"language_instruction": text})))
    with pytest.raises(DataError, match=r"lift.hdf5: contains no instruction; set instruction="):
        open_dataset(path)


OWN_INSTRUCTIONS = {
    "array of one": lambda demo: demo.attrs.update(lang=np.array(["open it"], dtype="S")),
    "array of one object": lambda demo: demo.attrs.create("language", ["open it"], dtype=h5py.string_dtype()),
    "name of RLDS": lambda demo: demo.attrs.update(natural_language_instruction="open it"),
    "dataset": lambda demo: demo.create_dataset("language_instruction", data="open it"),
    "dataset of every step": lambda demo: demo.create_dataset("obs/language", data=["open it"] * LENGTH),
}


@pytest.mark.parametrize("kind", OWN_INSTRUCTIONS)
def test_an_instruction_of_a_demonstration_precedes_that_of_the_file(kind, tmp_path):
    path = write_robomimic(tmp_path / "kitchen.hdf5", "do something")
    source = open_dataset(edit(path, lambda file: OWN_INSTRUCTIONS[kind](file["data/demo_2"])))
    assert [meta.instruction for meta in source.meta] == ["do something", "open it", "do something"]
    assert source.issues == ()


@pytest.mark.parametrize("group", ["data", "/"])
@pytest.mark.parametrize("key", ["language_instruction", "lang"])
def test_an_instruction_of_the_file_may_be_an_attribute(group, key, tmp_path):
    path = write_robomimic(tmp_path / "kitchen.hdf5", None)
    edit(path, lambda file: file[group].attrs.update({key: " pick it "}))
    edit(path, lambda file: file["data/demo_2"].attrs.update(lang="open it"))
    source = open_dataset(path)
    assert [meta.instruction for meta in source.meta] == ["pick it", "open it", "pick it"] and source.issues == ()


def test_an_array_of_words_is_reported(tmp_path):
    path = write_robomimic(tmp_path / "kitchen.hdf5", "do something")
    words = np.array(["open", "it"], dtype="S")
    source = open_dataset(edit(path, lambda file: file["data/demo_2"].attrs.update(lang=words)))
    assert messages(source) == [
        "lang is ['open', 'it'] in demo_2, so the instruction of the file, 'do something', is used"
    ]


# Success


@pytest.mark.parametrize(
    "state",
    [
        lambda demo: demo.attrs.update(success=False),  # Isaac Lab
        lambda demo: demo.attrs.update(success=np.array([0])),
        lambda demo: demo.create_dataset("success", data=np.zeros((LENGTH, 1))),
        lambda demo: demo.create_dataset("infos/is_success", data=np.zeros(LENGTH, bool)),
    ],
)
def test_a_stated_success_precedes_that_of_the_rewards(state, tmp_path):
    source = open_dataset(edit(write_robomimic(tmp_path / "lift.hdf5"), lambda file: state(file["data/demo_0"])))
    assert [meta.success for meta in source.meta] == [False, False, True] and source.issues == ()


def test_an_unknown_success_leaves_that_of_the_rewards(tmp_path):
    unknown = np.full(LENGTH, np.nan)
    path = write_robomimic(tmp_path / "lift.hdf5")
    source = open_dataset(edit(path, lambda file: file["data/demo_0"].create_dataset("success", data=unknown)))
    assert [meta.success for meta in source.meta] == ONE_IS_1


def test_a_success_of_another_meaning_leaves_out_its_episode(tmp_path):
    path = write_robomimic(tmp_path / "lift.hdf5")
    source = open_dataset(edit(path, lambda file: file["data/demo_0"].attrs.update(success=0.4)))
    (issue,) = source.issues
    assert issue.episodes == ("demo_0",) and "the attribute success of data/demo_0 is 0.4; true, false" in issue.message


# Images


def write_libero(path: Path, **attributes: object) -> Path:
    """Images as LIBERO names them, with attributes of the group `data`."""
    write_robomimic(path, None)

    def change(file: h5py.File) -> None:
        for demo in file["data"].values():
            demo.move("obs/agentview_image", "obs/agentview_rgb")
            demo.move("obs/robot0_eye_in_hand_image", "obs/eye_in_hand_rgb")
        del file["data"].attrs["env_args"]
        file["data"].attrs.update(attributes)

    return edit(path, change)


def open_libero(path: Path, **orientation: str) -> EpisodeSource:
    return open_dataset(path, "go", FeatureMap(fps=20, orientation=orientation))


@pytest.fixture
def upright(tmp_path: Path) -> np.ndarray:
    return open_dataset(write_robomimic(tmp_path / "upright.hdf5")).episode(0).views["agentview"]


FLIPPED = "LIBERO stores its images from below: they are flipped, unless features.orientation says otherwise"


@pytest.mark.parametrize(
    "attributes",
    [
        {},  # as OpenVLA regenerates it
        {"bddl_file_name": "libero_goal/open_the_drawer.bddl"},
        {"env_args": json.dumps({**ENV_ARGS, "bddl_file": "libero_goal/open_the_drawer.bddl"})},
        {"problem_info": json.dumps({"language_instruction": "go"}), "macros_image_convention": "opengl"},
    ],
)
def test_libero_is_recognized_by_its_layout(attributes, upright, tmp_path):
    source = open_libero(write_libero(tmp_path / "libero.hdf5", **attributes))
    assert source.views == ("agentview", "eye_in_hand") and messages(source) == [FLIPPED]
    assert np.array_equal(source.episode(0).views["agentview"], upright[:, ::-1])


@pytest.mark.parametrize("names", [{"bddl_file_name": "a.bddl"}, {"bddl_file_content": "(define)"}])
def test_libero_with_other_cameras_is_recognized_by_its_attributes(names, upright, tmp_path):
    path = write_libero(tmp_path / "libero.hdf5", **names)
    edit(path, lambda file: [demo.move("obs/eye_in_hand_rgb", "obs/front_rgb") for demo in file["data"].values()])
    assert np.array_equal(open_libero(path).episode(0).views["agentview"], upright[:, ::-1])
    edit(path, lambda file: [file["data"].attrs.pop(name) for name in names])
    assert np.array_equal(open_libero(path).episode(0).views["agentview"], upright)


def test_libero_can_state_that_its_images_are_upright(upright, tmp_path):
    source = open_libero(write_libero(tmp_path / "libero.hdf5", macros_image_convention="opencv"))
    assert source.issues == () and np.array_equal(source.episode(0).views["agentview"], upright)


@pytest.mark.parametrize(("name", "view"), [("agentview_seg", "agentview_seg"), ("goal_image", "goal")])
def test_libero_with_further_images_is_flipped_as_a_whole(name, view, upright, tmp_path):
    path = write_libero(tmp_path / "libero.hdf5", bddl_file_name="a.bddl", macros_image_convention="opengl")

    def add(file: h5py.File) -> None:
        for demo in file["data"].values():
            demo[f"obs/{name}"] = demo["obs/agentview_rgb"][()]

    edit(path, add)
    source = open_libero(path)
    assert messages(source) == [FLIPPED]
    assert all(np.array_equal(source.episode(0).views[name], upright[:, ::-1]) for name in ("agentview", view))


def test_images_from_below_under_other_names_are_reported(upright, tmp_path):
    path = write_robomimic(tmp_path / "lift.hdf5")
    source = open_libero(edit(path, lambda file: file["data"].attrs.update(macros_image_convention="opengl")))
    assert messages(source) == [
        "macros_image_convention is opengl, but its views are not those of LIBERO: they are read as stored, unless "
        "features.orientation says otherwise"
    ]
    assert np.array_equal(source.episode(0).views["agentview"], upright)


def test_only_the_files_of_libero_in_a_folder_are_flipped(upright, tmp_path):
    """The images of both have the same views."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    write_libero(folder / "libero.hdf5")
    other = write_libero(folder / "other.hdf5", macros_image_convention="opencv")
    source = open_libero(folder)
    frames = {meta.name: source.episode(row).views["agentview"] for row, meta in enumerate(source.meta)}
    assert np.array_equal(frames["libero/demo_0"], upright[:, ::-1]) and np.array_equal(frames["other/demo_0"], upright)
    block = source.read_frames(0, 2, 5, views=["agentview"], size=None).frames[:, 0]
    assert np.array_equal(block, upright[2:5, ::-1])
    assert messages(source) == [f"libero.hdf5: {FLIPPED}"]
    turned = open_libero(folder, agentview="mirror")
    for row in (0, 3):
        assert np.array_equal(turned.episode(row).views["agentview"], upright[:, :, ::-1])
    other.unlink()
    assert messages(open_libero(folder)) == [FLIPPED]


def test_turning_every_view_needs_no_note(upright, tmp_path):
    path = write_libero(tmp_path / "libero.hdf5")
    assert messages(open_libero(path, agentview="stored")) == [FLIPPED]
    source = open_libero(path, agentview="stored", eye_in_hand="stored")
    assert source.issues == () and np.array_equal(source.episode(0).views["agentview"], upright)
