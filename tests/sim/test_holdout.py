"""Held-out attributes: "seen" and "unseen" are disjoint and complete; other draws do not change."""

import hashlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied_sim.domain_randomization import Randomization, apply_min_fraction, sample_rotations
from embodied_sim.holdout import Holdout, color_object_pairs_of, task_sides_of
from embodied_sim.palette import PALETTE
from embodied_sim.registry import make_task, task_names
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

HOLDOUT = Holdout(
    color_object_pairs=(
        "green cube", "orange cube", "red cylinder", "purple cylinder", "blue peg", "yellow peg", "green button",
        "purple button",
    ),
    sides=("push_to_zone left", "turn_lever clockwise"),
    num_templates=1,
)  # fmt: skip
RANDOM_COLOR_TASKS = ("insert_peg", "place_in_bowl", "press_button", "push_to_zone", "sort_two", "stack_cubes")
"""Tasks that draw colors of objects per episode."""
SEEDS = st.integers(0, 2**32 - 1)

DRAW_HASHES = {
    "close_drawer": "9b08f3c9b87cb097",
    "cube_in_drawer": "ea480d6891f1d55b",
    "insert_peg": "6ea55561da737bf8",
    "lift_cube": "b7993a2e257208ab",
    "open_drawer": "37dd9344f6804951",
    "open_place_close": "d711dc2bc04a5180",
    "open_then_lift": "4ac2fea8c9a52594",
    "place_in_bowl": "f78a631a64d843ff",
    "place_in_drawer": "9528e830395790d5",
    "press_button": "9495b2aedde86118",
    "push_to_zone": "be5676674f7adcb5",
    "sort_two": "5534e18722987b6e",
    "stack_cubes": "7beb7eee2228cff5",
    "turn_lever": "6fe01ff3804a6c79",
}
"""Hashes of the draws of each task without holdout, from its first version: seeds must keep their episodes."""


def make_envs(task: str, count: int = 3, **kwargs: object) -> TabletopVecEnv:
    return TabletopVecEnv(task, count, autoreset_mode=AutoresetMode.DISABLED, **kwargs)


@pytest.mark.parametrize("task", task_names())
def test_draws_without_holdout_are_unchanged(task):
    env, digest = make_envs(task), hashlib.sha256()
    env.reset(seed=11)
    for _ in range(4):
        for layout, instruction in zip(env._layouts, env.instructions, strict=True):
            digest.update(layout.item_poses.tobytes() + layout.fixture_positions.tobytes())
            rest = (
                layout.start_pose_index,
                sorted(layout.joint_positions.items()),
                layout.object_order,
                layout.colors,
                layout.side_index,
                instruction,
            )
            digest.update(repr(rest).encode())
        env.reset(options={"reset_mask": np.array([True, False, True])})
    env.close()
    assert digest.hexdigest()[:16] == DRAW_HASHES[task]


@given(seed=SEEDS, task=st.sampled_from(RANDOM_COLOR_TASKS))
@settings(max_examples=60, deadline=None)
def test_held_out_colors_appear_in_unseen_only(seed, task):
    one, rng = make_task(task), np.random.default_rng(seed)
    assert not set(color_object_pairs_of(one, replace(HOLDOUT, color="seen").sample_layout(one, rng))) & set(
        HOLDOUT.color_object_pairs
    )
    assert set(color_object_pairs_of(one, replace(HOLDOUT, color="unseen").sample_layout(one, rng))) <= set(
        HOLDOUT.color_object_pairs
    )


@given(seed=SEEDS, task=st.sampled_from(("push_to_zone", "turn_lever")))
@settings(max_examples=20, deadline=None)
def test_held_out_sides_appear_in_unseen_only(seed, task):
    one, rng = make_task(task), np.random.default_rng(seed)
    assert not set(task_sides_of(one, replace(HOLDOUT, side="seen").sample_layout(one, rng))) & set(HOLDOUT.sides)
    assert set(task_sides_of(one, replace(HOLDOUT, side="unseen").sample_layout(one, rng))) <= set(HOLDOUT.sides)


@pytest.mark.parametrize("task", ["press_button", "push_to_zone"])
def test_every_color_of_every_object_is_seen_or_unseen(task):
    one, rng = make_task(task), np.random.default_rng(0)
    pairs = {
        split: {
            pair
            for _ in range(60)
            for pair in color_object_pairs_of(one, replace(HOLDOUT, color=split).sample_layout(one, rng))
        }
        for split in ("seen", "unseen")
    }
    all_pairs = {f"{color} {prop.noun}" for color, prop in product(PALETTE, one.object_props)}
    assert not pairs["seen"] & pairs["unseen"] and pairs["seen"] | pairs["unseen"] == all_pairs


@pytest.mark.parametrize("task", task_names())
@pytest.mark.parametrize("templates", [1, 2])
def test_last_phrasings_are_unseen(task, templates):
    one = make_task(task)
    holdout = Holdout(num_templates=templates)
    seen, unseen = (set(replace(holdout, phrasing=split).phrasing_indices(one)) for split in ("seen", "unseen"))
    assert not seen & unseen and seen | unseen == set(holdout.phrasing_indices(one)) == set(range(len(one.templates)))
    assert unseen == {len(one.templates) - 1 - i for i in range(templates)}


def test_environment_uses_phrasings_of_its_split():
    for split, allowed in (("seen", {"-4", "-3", "-2"}), ("unseen", {"-1"})):
        env = make_envs("place_in_bowl", 4, holdout=replace(HOLDOUT, phrasing=split, color=split))
        env.reset(seed=0)
        metadata = []
        for _ in range(6):
            metadata += [env.episode_metadata(row) for row in range(4)]
            episodes = zip(env.instructions, env._layouts, metadata[-4:], strict=True)
            assert all(env.task.instruction(at, int(m["phrasing"])) == text for text, at, m in episodes)
            env.reset()
        env.close()
        assert {m["phrasing"] for m in metadata} == allowed
        objects = {pair for m in metadata for pair in m["objects"].split(", ")}
        assert (
            objects <= set(HOLDOUT.color_object_pairs)
            if split == "unseen"
            else not objects & set(HOLDOUT.color_object_pairs)
        )


def test_scene_hash_identifies_a_start():
    """Light, arm and instruction do not change the hash."""
    one, two = (
        make_envs("push_to_zone"),
        make_envs("push_to_zone", robot="six_axis", randomize=Randomization(color=0.1)),
    )
    scenes = []
    for env in (one, two):
        env.reset(seed=5)
        scenes.append([env.episode_metadata(row)["scene"] for row in range(3)])
        other = replace(
            env._layouts[0], side_index=1 - env._layouts[0].side_index, object_order=env._layouts[0].object_order[::-1]
        )
        assert other.scene_hash == env._layouts[0].scene_hash
        moved = replace(env._layouts[0], item_poses=env._layouts[0].item_poses + 1e-6)
        assert moved.scene_hash != env._layouts[0].scene_hash
        env.close()
    assert scenes[0] == scenes[1] and len(set(scenes[0])) == 3


@given(seed=SEEDS, min_fraction=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_min_fraction_bounds_every_axis(seed, min_fraction):
    rng = np.random.default_rng(seed)
    deviation = rng.uniform(-1, 1, (5, 3))
    rescaled = apply_min_fraction(deviation, min_fraction)
    assert (np.abs(rescaled) >= min_fraction).all() and (np.abs(rescaled) <= 1 + 1e-12).all()
    assert np.array_equal(np.signbit(rescaled), np.signbit(deviation))
    assert np.array_equal(apply_min_fraction(deviation, 0.0), deviation), "without a minimum, draws do not change"
    angle = 2 * np.arccos(np.clip(sample_rotations(rng, 5, 0.4, min_fraction)[:, 0], -1, 1))
    assert (angle >= 0.4 * min_fraction - 1e-6).all() and (angle <= 0.4 + 1e-6).all()


def test_min_camera_fraction_excludes_training_cameras():
    env = make_envs(
        "lift_cube", 4, randomize=Randomization(camera_shift=0.06, camera_rotation=0.1, min_camera_fraction=0.5)
    )
    env.reset(seed=0)
    assert np.abs(env._backend.expanded_fields["cam_pos"] - env.model.cam_pos).min() >= 0.03 - 1e-6
    env.close()


@pytest.mark.parametrize(
    ("task", "holdout", "message"),
    [
        (
            "lift_cube",
            {"color_object_pairs": ("green cube",), "color": "unseen"},
            "'lift_cube' has no start with color=unseen",
        ),
        (
            "lift_cube",
            {"color_object_pairs": ("red cube",), "color": "seen"},
            "it has such as these: red cube, blue cube",
        ),
        ("turn_lever", {"color_object_pairs": ("red cube",), "color": "unseen"}, "turn_lever"),
        ("lift_cube", {"side": "unseen"}, "side=unseen"),
        (
            "lift_cube",
            {"num_templates": 4, "phrasing": "seen"},
            "has no seen phrasing: of its 4 the last 4 are held out",
        ),
        ("lift_cube", {"phrasing": "unseen"}, "has no unseen phrasing: of its 4 the last 0 are held out"),
        ("lift_cube", {"color_object_pairs": ("grean cube",)}, "'grean'. Did you mean 'green'?"),
        ("lift_cube", {"color_object_pairs": ("green",)}, "a color and a thing such as 'green cube', got 'green'"),
        ("lift_cube", {"color": "sen"}, "unknown value of color 'sen'. Did you mean 'seen'?"),
        ("lift_cube", {"num_templates": -1}, "num_templates must be >= 0, got -1"),
    ],
)
def test_invalid_or_empty_holdout_is_rejected(task, holdout, message):
    with pytest.raises(SimError) as error:
        make_envs(task, 1, holdout=Holdout(**holdout))
    assert message in str(error.value)


def test_min_fraction_above_1_is_rejected():
    with pytest.raises(SimError, match=r"randomize.min_appearance_fraction must be <= 1, got 2"):
        Randomization(min_appearance_fraction=2)
