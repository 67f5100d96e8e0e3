"""Worlds that look different: every renderer shows each world in its own colours, from its own cameras."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from sim.backends import make_backend
from sim.backends.base import VARIABLE, VISIBLE
from sim.layout import draw_colours
from sim.props import Item
from sim.props.base import PALETTE
from sim.render import RENDERERS, make_renderer
from sim.robots import ROBOTS
from sim.scene import build_scene
from sim.vec_env import TabletopVecEnv

ITEM = Item("thing", "red")
ROWS = np.arange(3)


@pytest.fixture
def worlds():
    backend = make_backend("batch", build_scene((ITEM,), ROBOTS["panda"]), 3)
    yield backend
    backend.close()


@pytest.mark.parametrize("name", sorted(set(RENDERERS) - {"auto"}))
def test_a_world_is_drawn_in_its_own_colours_and_from_its_own_camera(worlds, name):
    renderer = make_renderer(name, worlds, ("front",), 64)
    before = renderer.render(ROWS)
    assert np.array_equal(before[0], before[1])
    worlds.vary("geom_rgba")[1, worlds.model.geom("thing").id] = PALETTE["green"]
    worlds.vary("cam_pos")[2, worlds.model.camera("front").id] += [0.0, 0.05, 0.0]
    after = renderer.render(ROWS)
    assert np.array_equal(after[0], before[0])
    assert not np.array_equal(after[1], before[1]) and not np.array_equal(after[2], before[2])
    assert np.array_equal(renderer.render(ROWS[::-1]), after[::-1])
    changed = (after[1] != before[1]).any(-1)
    assert 12 <= changed.sum() <= 400, "only the thing has another colour"
    renderer.close()


@pytest.mark.parametrize("name", sorted(set(RENDERERS) - {"auto"}))
def test_every_camera_field_shows_in_the_pictures_of_its_world(worlds, name):
    renderer = make_renderer(name, worlds, ("front",), 64)
    before = renderer.render(ROWS)
    worlds.vary("cam_fovy")[1] *= 1.2
    worlds.vary("cam_quat")[2] += 0.02
    after = renderer.render(ROWS)
    assert [np.array_equal(a, b) for a, b in zip(after, before, strict=True)] == [True, False, False]
    renderer.close()


def test_what_only_pictures_show_moves_nothing(worlds):
    for name in VISIBLE:
        worlds.vary(name)[1] *= 0.9
    assert set(worlds.varied) == set(VISIBLE)
    for _ in range(5):
        worlds.step(10)
    assert np.array_equal(worlds.qpos[0], worlds.qpos[1])


def test_a_heavier_thing_is_harder_to_stop(worlds):
    body = worlds.model.body("thing").id
    for name in ("body_mass", "body_inertia"):
        assert name in VARIABLE
        worlds.vary(name)[1, body] *= 4
    worlds.vary("geom_friction")[2, worlds.model.geom("thing").id] = 0.01
    worlds.vary("geom_friction")[2, worlds.model.geom("table").id] = 0.01
    velocity = np.zeros((3, worlds.model.nv))
    velocity[:, -6] = -0.5
    worlds.set_state(ROWS, worlds.qpos.copy(), velocity)
    start = worlds.qpos[:, -7].copy()
    for _ in range(10):
        worlds.step(10)
    slid = start - worlds.qpos[:, -7]
    assert slid[2] > slid[0] + 0.02, "less friction, farther"


def test_no_two_objects_have_one_colour():
    objects = (Item("a"), Item("b", "red"), Item("c"))
    rng = np.random.default_rng(0)
    seen = {draw_colours(objects, rng) for _ in range(200)}
    assert all(len(set(colours)) == 3 and colours[1] == "red" for colours in seen)
    assert {colours[0] for colours in seen} == set(PALETTE) - {"red"}
    assert draw_colours((Item("a", "red"),), rng) == ("red",)


def test_a_task_without_drawn_colours_needs_no_looks_of_its_own():
    env = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    assert not env._backend.varied
    env.close()
