"""Worlds that look different: every renderer shows each world in its own colors, from its own cameras."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.backends import make_backend
from embodied_sim.backends.backend import VARIABLE_FIELDS, VISUAL_FIELDS
from embodied_sim.layout import sample_colors
from embodied_sim.props import Item
from embodied_sim.props.prop import PALETTE
from embodied_sim.render import RENDERERS, make_renderer
from embodied_sim.robots import ROBOTS
from embodied_sim.scene import build_scene
from embodied_sim.vec_env import TabletopVecEnv

ITEM = Item("thing", "red")
ROWS = np.arange(3)


@pytest.fixture
def envs():
    backend = make_backend("batch", build_scene((ITEM,), ROBOTS["panda"]), 3)
    yield backend
    backend.close()


@pytest.mark.parametrize("name", sorted(set(RENDERERS) - {"auto"}))
def test_a_env_is_drawn_in_its_own_colors_and_from_its_own_camera(envs, name):
    renderer = make_renderer(name, envs, ("front",), 64)
    before = renderer.render(ROWS)
    assert np.array_equal(before[0], before[1])
    envs.vary("geom_rgba")[1, envs.model.geom("thing").id] = PALETTE["green"]
    envs.vary("cam_pos")[2, envs.model.camera("front").id] += [0.0, 0.05, 0.0]
    after = renderer.render(ROWS)
    assert np.array_equal(after[0], before[0])
    assert not np.array_equal(after[1], before[1]) and not np.array_equal(after[2], before[2])
    assert np.array_equal(renderer.render(ROWS[::-1]), after[::-1])
    changed = (after[1] != before[1]).any(-1)
    assert 12 <= changed.sum() <= 400, "only the thing has another color"
    renderer.close()


@pytest.mark.parametrize("name", sorted(set(RENDERERS) - {"auto"}))
def test_every_camera_field_shows_in_the_images_of_its_env(envs, name):
    renderer = make_renderer(name, envs, ("front",), 64)
    before = renderer.render(ROWS)
    envs.vary("cam_fovy")[1] *= 1.2
    envs.vary("cam_quat")[2] += 0.02
    after = renderer.render(ROWS)
    assert [np.array_equal(a, b) for a, b in zip(after, before, strict=True)] == [True, False, False]
    renderer.close()


def test_what_only_images_show_moves_nothing(envs):
    for name in VISUAL_FIELDS:
        envs.vary(name)[1] *= 0.9
    assert set(envs.varied) == set(VISUAL_FIELDS)
    for _ in range(5):
        envs.step(10)
    assert np.array_equal(envs.qpos[0], envs.qpos[1])


def test_a_heavier_thing_is_harder_to_stop(envs):
    body = envs.model.body("thing").id
    for name in ("body_mass", "body_inertia"):
        assert name in VARIABLE_FIELDS
        envs.vary(name)[1, body] *= 4
    envs.vary("geom_friction")[2, envs.model.geom("thing").id] = 0.01
    envs.vary("geom_friction")[2, envs.model.geom("table").id] = 0.01
    velocity = np.zeros((3, envs.model.nv))
    velocity[:, -6] = -0.5
    envs.set_state(ROWS, envs.qpos.copy(), velocity)
    start = envs.qpos[:, -7].copy()
    for _ in range(10):
        envs.step(10)
    slid = start - envs.qpos[:, -7]
    assert slid[2] > slid[0] + 0.02, "less friction, farther"


def test_no_two_objects_have_one_color():
    objects = (Item("a"), Item("b", "red"), Item("c"))
    rng = np.random.default_rng(0)
    seen = {sample_colors(objects, rng) for _ in range(200)}
    assert all(len(set(colors)) == 3 and colors[1] == "red" for colors in seen)
    assert {colors[0] for colors in seen} == set(PALETTE) - {"red"}
    assert sample_colors((Item("a", "red"),), rng) == ("red",)


def test_a_task_without_drawn_colors_needs_no_looks_of_its_own():
    env = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    assert not env._backend.expanded_fields
    env.close()
