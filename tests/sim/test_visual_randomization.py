"""Per-world model fields: every renderer shows each world with its own colors and cameras."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.backends import make_backend
from embodied_sim.backends.backend import VARIABLE_FIELDS, VISUAL_FIELDS
from embodied_sim.layout import sample_colors
from embodied_sim.palette import PALETTE
from embodied_sim.props import Item
from embodied_sim.render import RENDERERS, make_renderer
from embodied_sim.robots import ROBOTS
from embodied_sim.scene import build_scene
from embodied_sim.vec_env import TabletopVecEnv

ITEM = Item("thing", "red")
ROWS = np.arange(3)


@pytest.fixture
def backend():
    backend = make_backend("batch", build_scene((ITEM,), ROBOTS["panda"]), 3)
    yield backend
    backend.close()


@pytest.mark.parametrize("name", sorted(set(RENDERERS) - {"auto"}))
def test_world_is_drawn_with_its_own_colors_and_camera(backend, name):
    renderer = make_renderer(name, backend, ("front",), 64)
    before = renderer.render(ROWS)
    assert np.array_equal(before[0], before[1])
    backend.expand_field("geom_rgba")[1, backend.model.geom("thing").id] = PALETTE["green"]
    backend.expand_field("cam_pos")[2, backend.model.camera("front").id] += [0.0, 0.05, 0.0]
    after = renderer.render(ROWS)
    assert np.array_equal(after[0], before[0])
    assert not np.array_equal(after[1], before[1]) and not np.array_equal(after[2], before[2])
    assert np.array_equal(renderer.render(ROWS[::-1]), after[::-1])
    changed = (after[1] != before[1]).any(-1)
    assert 12 <= changed.sum() <= 400, "only the object has another color"
    renderer.close()


@pytest.mark.parametrize("name", sorted(set(RENDERERS) - {"auto"}))
def test_camera_fields_change_the_images_of_their_world(backend, name):
    renderer = make_renderer(name, backend, ("front",), 64)
    before = renderer.render(ROWS)
    backend.expand_field("cam_fovy")[1] *= 1.2
    backend.expand_field("cam_quat")[2] += 0.02
    after = renderer.render(ROWS)
    assert [np.array_equal(a, b) for a, b in zip(after, before, strict=True)] == [True, False, False]
    renderer.close()


def test_visual_fields_do_not_change_the_physics(backend):
    for name in VISUAL_FIELDS:
        backend.expand_field(name)[1] *= 0.9
    assert set(backend.expanded_fields) == set(VISUAL_FIELDS)
    for _ in range(5):
        backend.step(10)
    assert np.array_equal(backend.qpos[0], backend.qpos[1])


def test_friction_changes_the_sliding_distance(backend):
    body = backend.model.body("thing").id
    for name in ("body_mass", "body_inertia"):
        assert name in VARIABLE_FIELDS
        backend.expand_field(name)[1, body] *= 4
    backend.expand_field("geom_friction")[2, backend.model.geom("thing").id] = 0.01
    backend.expand_field("geom_friction")[2, backend.model.geom("table").id] = 0.01
    velocity = np.zeros((3, backend.model.nv))
    velocity[:, -6] = -0.5
    backend.set_state(ROWS, backend.qpos.copy(), velocity)
    start = backend.qpos[:, -7].copy()
    for _ in range(10):
        backend.step(10)
    slid = start - backend.qpos[:, -7]
    assert slid[2] > slid[0] + 0.02, "less friction, longer distance"


def test_objects_have_different_colors():
    objects = (Item("a"), Item("b", "red"), Item("c"))
    rng = np.random.default_rng(0)
    samples = {sample_colors(objects, rng) for _ in range(200)}
    assert all(len(set(colors)) == 3 and colors[1] == "red" for colors in samples)
    assert {colors[0] for colors in samples} == set(PALETTE) - {"red"}
    assert sample_colors((Item("a", "red"),), rng) == ("red",)


def test_task_without_random_colors_expands_no_field():
    env = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    assert not env._backend.expanded_fields
    env.close()
