"""Environments are opened, rendered and closed in any order: no image is black, or that of another environment."""

from __future__ import annotations

import numpy as np
import pytest

from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv


def make(task: str, size: int = 64, seed: int = 0) -> TabletopVecEnv:
    envs = TabletopVecEnv(task, num_envs=2, views=("front",), image_size=size)
    envs.reset(seed=seed)
    return envs


def images_alone(task: str, size: int = 64, seed: int = 0) -> np.ndarray:
    envs = make(task, size, seed)
    images = envs.render_views().copy()
    envs.close()
    return images


def test_environments_are_opened_and_closed_several_times() -> None:
    first = images_alone("lift_cube")
    assert first.std() > 10
    for _ in range(2):
        assert np.array_equal(images_alone("lift_cube"), first)


@pytest.mark.parametrize("size", [64, 48])
def test_two_environments_that_are_rendered_in_turn_have_their_own_images(size: int) -> None:
    expected = images_alone("lift_cube"), images_alone("open_drawer", size, seed=1)
    envs = make("lift_cube"), make("open_drawer", size, seed=1)
    for _ in range(3):
        for env, images in zip(envs, expected, strict=True):
            assert np.array_equal(env.render_views(), images)
    envs[0].close()
    assert np.array_equal(envs[1].render_views(), expected[1])
    envs[1].close()


@pytest.mark.parametrize("rendered_before", [False, True])
def test_closed_environments_cannot_be_rendered(rendered_before: bool) -> None:
    envs = make("lift_cube")
    if rendered_before:
        envs.render_views()
    envs.close()
    with pytest.raises(SimError, match="are closed, so they cannot be rendered"):
        envs.render_views()
