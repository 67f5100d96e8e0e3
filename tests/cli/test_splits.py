"""Splits: each unseen one differs from the training split in one attribute; overlaps are found in metadata."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.config_files import group_choices
from embodied_rm.errors import UserError
from embodied_rm.experiments.one_shot import goal_instructions
from embodied_rm.tabletop.splits import (
    Split,
    check_split,
    check_split_unseen,
    load_split,
    split_mismatch,
    unseen_splits,
)
from embodied_rm.types import Episode
from embodied_sim.holdout import Holdout
from embodied_sim.palette import PALETTE
from embodied_sim.registry import make_task, task_names
from embodied_sim.sim_errors import SimError

SEEN = load_split("seen")
DIFFERS = {
    "unseen_appearance": {
        "randomize.light_rotation",
        "randomize.brightness",
        "randomize.color",
        "randomize.min_appearance_fraction",
    },
    "unseen_arm": {"robot"},
    "unseen_camera": {"randomize.camera_shift", "randomize.camera_rotation", "randomize.min_camera_fraction"},
    "unseen_color": {"holdout.color", "tasks"},
    "unseen_phrasing": {"holdout.phrasing"},
    "unseen_task": {"tasks"},
}


def flat(split: Split) -> dict[str, object]:
    """Return all dotted keys of a split, except for its name."""
    parts = {f.name: getattr(split, f.name) for f in fields(split) if f.name != "name"}
    inner = {name: parts.pop(name) for name in ("holdout", "randomize")}
    return parts | {f"{name}.{key}": value for name, part in inner.items() for key, value in vars(part).items()}


def test_every_unseen_split_differs_from_seen_in_one_attribute() -> None:
    assert set(unseen_splits()) == set(DIFFERS)
    for name, differing_keys in DIFFERS.items():
        split_values, seen_values = flat(load_split(name)), flat(SEEN)
        assert {key for key in seen_values if split_values[key] != seen_values[key]} == differing_keys
        assert load_split(name).name == name


def test_unseen_splits_do_not_overlap_with_training() -> None:
    assert not set(load_split("unseen_task").tasks) & set(SEEN.tasks)
    assert set(load_split("unseen_task").tasks) | set(SEEN.tasks) == set(task_names())
    assert set(load_split("unseen_color").tasks) <= set(SEEN.tasks)
    camera, appearance, seen = (
        load_split("unseen_camera").randomize,
        load_split("unseen_appearance").randomize,
        SEEN.randomize,
    )
    for name in ("camera_shift", "camera_rotation"):
        assert getattr(camera, name) * camera.min_camera_fraction >= getattr(seen, name) > 0
    for name in ("light_rotation", "brightness", "color"):
        assert getattr(appearance, name) * appearance.min_appearance_fraction >= getattr(seen, name) > 0


def test_every_color_and_object_is_trained_in_other_pairs() -> None:
    """Only the pair is new: every color and every object occurs in training."""
    held_pairs = [tuple(pair.split()) for pair in SEEN.holdout.color_object_pairs]
    object_kinds = {kind for _, kind in held_pairs}
    sampled_kinds = {prop.noun for name in SEEN.tasks for prop in make_task(name).object_props if prop.color is None}
    assert object_kinds == sampled_kinds, "every kind of object has held-out colors"
    for color in PALETTE:
        assert sum((color, kind) not in held_pairs for kind in object_kinds) >= 2, color
    for kind in object_kinds:
        assert sum((color, kind) not in held_pairs for color in PALETTE) >= 4, kind


@pytest.mark.parametrize("name", [name for name in group_choices("split") if name != "all"])
def test_every_task_of_every_split_has_layouts_and_phrasings(name: str) -> None:
    split, rng = load_split(name), np.random.default_rng(0)
    check_split(split)
    for task in map(make_task, split.tasks):
        split.holdout.sample_layout(task, rng)
        assert len(split.holdout.phrasing_indices(task)) == {"any": 4, "seen": 3, "unseen": 1}[split.holdout.phrasing]


def test_goal_instructions_are_all_phrasings_of_the_split() -> None:
    demonstration = Episode(
        name="one",
        views={"front": np.zeros((2, 8, 8, 3), np.uint8)},
        instruction="put the red cube into the drawer and close it",
        fps=10,
        metadata={"task": "cube_in_drawer", "goal": "put the red cube into the drawer and close it"},
    )
    own_goal_instructions, other_goal_instructions = goal_instructions(demonstration, SEEN.holdout)
    assert (
        demonstration.instruction in own_goal_instructions
        and len(own_goal_instructions) == len(other_goal_instructions) == 3
    )
    assert all("red" in entry and "blue" not in entry for entry in own_goal_instructions)
    assert all("blue" in entry and "red" not in entry for entry in other_goal_instructions)


METADATA = {"split": "seen", "task": "stack_cubes", "objects": "red cube, blue cube", "side": "", "phrasing": "-2"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({"split": "unseen_camera"}, "recorded with split=unseen_camera, not with split=seen"),
        ({"task": "close_drawer"}, "the task close_drawer is none of split=seen"),
        ({"objects": "red cube, green cube"}, "split=seen holds out green cube"),
        ({"phrasing": "-1"}, "split=seen holds out phrasing -1"),
    ],
)
def test_held_out_episodes_in_training_data_are_found(change: dict[str, str], sentence: str | None) -> None:
    results = split_mismatch(SEEN, set(SEEN.tasks), METADATA | change)
    assert results is None if sentence is None else results is not None and sentence in results


def test_episodes_without_metadata_cannot_be_checked() -> None:
    results = split_mismatch(SEEN, set(SEEN.tasks), {"task": "stack_cubes"})
    assert results == "its metadata lack 'split': record it with embodied-rm collect split=seen"


def test_a_model_is_not_evaluated_on_its_training_splits() -> None:
    facts = {"splits": ["seen 0", "unseen_camera 7"]}
    check_split_unseen(facts, SEEN, 1000)
    check_split_unseen(facts, load_split("unseen_task"), 0)
    with pytest.raises(UserError, match=r"the model was trained on split=seen \(seed 0\)"):
        check_split_unseen(facts, SEEN, 0)
    with pytest.raises(UserError, match="trained on cube_in_drawer, which split=unseen_task requires to be unseen"):
        check_split_unseen({"tasks": ["cube_in_drawer", "lift_cube"]}, load_split("unseen_task"), 0)
    check_split_unseen({"tasks": ["cube_in_drawer", "lift_cube"]}, load_split("unseen_camera"), 0)
    with pytest.raises(UserError, match=r"the model was trained on split=unseen_camera \(seed 7\)"):
        check_split_unseen(facts, load_split("unseen_camera"), 1000)


def test_bundled_splits_are_fixed() -> None:
    changed = replace(SEEN, tasks=("lift_cube",))
    with pytest.raises(UserError, match="split=seen is fixed; give a changed split another name"):
        check_split(changed)
    check_split(replace(changed, name="mine"))
    with pytest.raises(UserError, match=r"unknown object of the held-out pair 'red cub': 'cub'\. Did you mean 'cube'"):
        check_split(replace(changed, name="mine", holdout=Holdout(color_object_pairs=("red cub",))))
    with pytest.raises(UserError, match="unknown held-out side 'push_to_zone up'"):
        check_split(replace(changed, name="mine", holdout=Holdout(sides=("push_to_zone up",))))
    with pytest.raises(SimError, match="unknown task 'lift'"):
        check_split(replace(changed, name="mine", tasks=("lift",)))


def test_metadata_of_a_demonstration_runs_no_file(tmp_path: Path) -> None:
    """One-shot adaptation looks up the task of a dataset by name; a Python file of that name is not run."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\n")
    meta, views = {"task": str(tmp_path / "evil.py")}, {"front": np.zeros((2, 8, 8, 3), np.uint8)}
    episode = Episode(name="a", views=views, fps=10, instruction="lift it", subtasks=(), success=True, metadata=meta)
    with pytest.raises(SimError, match="unknown task"):
        goal_instructions(episode, Holdout())
    assert not (tmp_path / "PWNED").exists()
