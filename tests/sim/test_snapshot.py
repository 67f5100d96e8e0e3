"""An environment goes on from a snapshot as the one did that it was taken of, to the last bit."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.domain_randomization import Randomization
from embodied_sim.registry import task_names
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

RANDOM = Randomization(camera_shift=0.01, color=0.1, friction=0.2, mass=0.3, latency=2)


def played(env, seed: int, steps: int):
    """Everything that is seen of `steps` random steps; ended rows begin anew."""
    rng, seen = np.random.default_rng(seed), []
    for step in range(steps):
        observation, reward, terminated, truncated, infos = env.step(rng.uniform(-1, 1, (env.num_envs, 4)))
        ended = terminated | truncated | (rng.random(env.num_envs) < 0.05)
        if ended.any():
            observation, _ = env.reset(options={"reset_mask": ended})
        seen += [observation, reward, ended, infos["progress"], infos["success"], np.array(env.instructions)]
        if step % 8 == 0:
            seen.append(env.render_views())
    return seen


def envs(task: str, **options) -> TabletopVecEnv:
    return TabletopVecEnv(task, 3, views=("front",), autoreset_mode=AutoresetMode.DISABLED, **options)


@pytest.mark.parametrize("task", task_names())
def test_a_restored_environment_goes_the_same_way(task: str):
    one, other, fresh = (envs(task, randomize=RANDOM) for _ in range(3))
    one.reset(seed=3)
    played(one, 0, 12)
    taken = {name: array.copy() for name, array in one.snapshot().items()}
    expected = played(one, 1, 20)
    other.reset(seed=99)
    played(other, 2, 5)
    first = other.restore(taken)
    fresh.restore(taken)
    assert np.array_equal(first, other._observe()) and first.dtype == np.float32
    for env in (other, fresh):
        for mine, theirs in zip(played(env, 1, 20), expected, strict=True):
            assert np.array_equal(mine, theirs)
    one.close(), other.close(), fresh.close()


def test_the_other_engine_too():
    one, other = (envs("lift_cube", backend="warp") for _ in range(2))
    one.reset(seed=3)
    played(one, 0, 6)
    taken = one.snapshot()
    expected = played(one, 1, 6)
    other.reset(seed=1)
    other.restore(taken)
    for mine, theirs in zip(played(other, 1, 6), expected, strict=True):
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs)
        else:
            assert np.array_equal(mine, theirs)
    one.close(), other.close()


def test_of_another_environment_it_is_refused():
    one, other, more = envs("lift_cube"), envs("open_drawer"), envs("lift_cube", randomize=RANDOM)
    more.reset(seed=0)
    few = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED)
    for env in (other, few):
        with pytest.raises(SimError, match="another environment"):
            one.restore(env.snapshot())
    with pytest.raises(SimError, match="another environment"):
        more.restore(one.snapshot())
    for env in (one, other, more, few):
        env.close()


def test_a_diverged_env_is_no_place_to_go_on_from():
    env = envs("lift_cube")
    env.reset(seed=0)
    env._backend.qvel[1, -6:-3] = 8e4
    env.step(np.zeros((3, 4)))
    with pytest.raises(SimError, match="world 1 has diverged"):
        env.snapshot()
    env.reset(options={"reset_mask": np.array([False, True, False])})
    env.snapshot()
    env.close()
