"""Held-out attributes: seen and unseen share nothing and leave nothing out; the rest stays as it was."""

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
from embodied_sim.props.prop import PALETTE
from embodied_sim.registry import make_task, task_names
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

HELD = Holdout(
    color_object_pairs=("green cube", "orange cube", "red cylinder", "purple cylinder", "blue peg", "yellow peg", "green button",
           "purple button"),
    sides=("push_to_zone left", "turn_lever clockwise"),
    num_templates=1,
)  # fmt: skip
DRAWING = ("insert_peg", "place_in_bowl", "press_button", "push_to_zone", "sort_two", "stack_cubes")
"""The tasks whose objects get a color in every episode."""
SEEDS = st.integers(0, 2**32 - 1)

BEFORE = {
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
"""Of what each task drew when nothing could be held out yet, or when it was new: those who trained on it find the same
worlds again."""


def envs(task: str, count: int = 3, **kwargs: object) -> TabletopVecEnv:
    return TabletopVecEnv(task, count, autoreset_mode=AutoresetMode.DISABLED, **kwargs)


@pytest.mark.parametrize("task", task_names())
def test_where_nothing_is_held_out_the_draws_are_bit_for_bit_those_of_before(task):
    env, digest = envs(task), hashlib.sha256()
    env.reset(seed=11)
    for _ in range(4):
        for at, text in zip(env._layouts, env.instructions, strict=True):
            digest.update(at.item_poses.tobytes() + at.fixture_positions.tobytes())
            rest = (
                at.start_pose_index,
                sorted(at.joint_positions.items()),
                at.object_order,
                at.colors,
                at.side_index,
                text,
            )
            digest.update(repr(rest).encode())
        env.reset(options={"reset_mask": np.array([True, False, True])})
    env.close()
    assert digest.hexdigest()[:16] == BEFORE[task]


@given(seed=SEEDS, task=st.sampled_from(DRAWING))
@settings(max_examples=60, deadline=None)
def test_no_held_out_color_is_ever_seen_and_unseen_envs_have_no_other(seed, task):
    one, rng = make_task(task), np.random.default_rng(seed)
    assert not set(color_object_pairs_of(one, replace(HELD, color="seen").sample_layout(one, rng))) & set(
        HELD.color_object_pairs
    )
    assert set(color_object_pairs_of(one, replace(HELD, color="unseen").sample_layout(one, rng))) <= set(
        HELD.color_object_pairs
    )


@given(seed=SEEDS, task=st.sampled_from(("push_to_zone", "turn_lever")))
@settings(max_examples=20, deadline=None)
def test_the_same_of_sides(seed, task):
    one, rng = make_task(task), np.random.default_rng(seed)
    assert not set(task_sides_of(one, replace(HELD, side="seen").sample_layout(one, rng))) & set(HELD.sides)
    assert set(task_sides_of(one, replace(HELD, side="unseen").sample_layout(one, rng))) <= set(HELD.sides)


@pytest.mark.parametrize("task", ["press_button", "push_to_zone"])
def test_every_color_of_every_thing_is_either_seen_or_unseen(task):
    one, rng = make_task(task), np.random.default_rng(0)
    shown = {
        part: {
            pair
            for _ in range(150)
            for pair in color_object_pairs_of(one, replace(HELD, color=part).sample_layout(one, rng))
        }
        for part in ("seen", "unseen")
    }
    every = {f"{color} {prop.noun}" for color, prop in product(PALETTE, one.object_props)}
    assert not shown["seen"] & shown["unseen"] and shown["seen"] | shown["unseen"] == every


@pytest.mark.parametrize("task", task_names())
@pytest.mark.parametrize("templates", [1, 2])
def test_the_last_phrasings_are_unseen_and_the_others_seen(task, templates):
    one = make_task(task)
    held = Holdout(num_templates=templates)
    seen, unseen = (set(replace(held, phrasing=part).phrasing_indices(one)) for part in ("seen", "unseen"))
    assert not seen & unseen and seen | unseen == set(held.phrasing_indices(one)) == set(range(len(one.templates)))
    assert unseen == {len(one.templates) - 1 - i for i in range(templates)}


def test_an_environment_says_nothing_else_than_its_phrasings():
    for part, allowed in (("seen", {"-4", "-3", "-2"}), ("unseen", {"-1"})):
        env = envs("place_in_bowl", 4, holdout=replace(HELD, phrasing=part, color=part))
        env.reset(seed=0)
        drawn = []
        for _ in range(6):
            drawn += [env.episode_metadata(row) for row in range(4)]
            said = zip(env.instructions, env._layouts, drawn[-4:], strict=True)
            assert all(env.task.instruction(at, int(d["phrasing"])) == text for text, at, d in said)
            env.reset()
        env.close()
        assert {d["phrasing"] for d in drawn} == allowed
        objects = {pair for d in drawn for pair in d["objects"].split(", ")}
        assert (
            objects <= set(HELD.color_object_pairs) if part == "unseen" else not objects & set(HELD.color_object_pairs)
        )


def test_a_scene_is_known_again_by_its_fingerprint():
    """Under another light, with another arm, asked for something else: it stays the same scene."""
    one, two = envs("push_to_zone"), envs("push_to_zone", robot="six_axis", randomize=Randomization(color=0.1))
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


@given(seed=SEEDS, least=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_beyond_is_beyond_along_every_axis(seed, least):
    rng = np.random.default_rng(seed)
    deviation = rng.uniform(-1, 1, (5, 3))
    pressed = apply_min_fraction(deviation, least)
    assert (np.abs(pressed) >= least).all() and (np.abs(pressed) <= 1 + 1e-12).all()
    assert np.array_equal(np.signbit(pressed), np.signbit(deviation))
    assert np.array_equal(apply_min_fraction(deviation, 0.0), deviation), "without it, every draw stays what it was"
    angle = 2 * np.arccos(np.clip(sample_rotations(rng, 5, 0.4, least)[:, 0], -1, 1))
    assert (angle >= 0.4 * least - 1e-6).all() and (angle <= 0.4 + 1e-6).all()


def test_cameras_beyond_those_of_training_are_none_of_them():
    env = envs("lift_cube", 4, randomize=Randomization(camera_shift=0.06, camera_rotation=0.1, min_camera_fraction=0.5))
    env.reset(seed=0)
    assert np.abs(env._backend.expanded_fields["cam_pos"] - env.model.cam_pos).min() >= 0.03 - 1e-6
    env.close()


@pytest.mark.parametrize(
    ("task", "holdout", "sentence"),
    [
        ("lift_cube", {"pairs": ("green cube",), "color": "unseen"}, "'lift_cube' has no start with color=unseen"),
        ("lift_cube", {"pairs": ("red cube",), "color": "seen"}, "it has such as these: red cube, blue cube"),
        ("turn_lever", {"pairs": ("red cube",), "color": "unseen"}, "turn_lever"),
        ("lift_cube", {"side": "unseen"}, "side=unseen"),
        ("lift_cube", {"templates": 4, "phrasing": "seen"}, "has no seen phrasing: of its 4 the last 4 are held out"),
        ("lift_cube", {"phrasing": "unseen"}, "has no unseen phrasing: of its 4 the last 0 are held out"),
        ("lift_cube", {"pairs": ("grean cube",)}, "'grean'. Did you mean 'green'?"),
        ("lift_cube", {"pairs": ("green",)}, "a color and a thing such as 'green cube', got 'green'"),
        ("lift_cube", {"color": "sen"}, "unknown value of color 'sen'. Did you mean 'seen'?"),
        ("lift_cube", {"templates": -1}, "templates must be >= 0, got -1"),
    ],
)  # fmt: skip
def test_a_holdout_that_leaves_nothing_is_refused(task, holdout, sentence):
    with pytest.raises(SimError) as caught:
        envs(task, 1, holdout=Holdout(**holdout))
    assert sentence in str(caught.value)


def test_a_least_deviation_beyond_the_largest_is_refused():
    with pytest.raises(SimError, match=r"randomize.least_look must be <= 1, got 2"):
        Randomization(min_appearance_fraction=2)
