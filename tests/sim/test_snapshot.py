"""A restored environment continues bit-identically."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.domain_randomization import Randomization
from embodied_sim.registry import task_names
from embodied_sim.sim_errors import SimError
from embodied_sim.snapshot import take_rows
from embodied_sim.vec_env import TabletopVecEnv

RANDOM = Randomization(camera_shift=0.01, color=0.1, friction=0.2, mass=0.3, latency=2)


def rollout(env, seed: int, steps: int):
    """Return all outputs of `steps` random steps; ended rows are reset."""
    rng, outputs = np.random.default_rng(seed), []
    for step in range(steps):
        observation, reward, terminated, truncated, infos = env.step(rng.uniform(-1, 1, (env.num_envs, 4)))
        ended = terminated | truncated | (rng.random(env.num_envs) < 0.05)
        if ended.any():
            observation, _ = env.reset(options={"reset_mask": ended})
        outputs += [observation, reward, ended, infos["progress"], infos["success"], np.array(env.instructions)]
        if step % 8 == 0:
            outputs.append(env.render_views())
    return outputs


def make_envs(task: str, **options) -> TabletopVecEnv:
    return TabletopVecEnv(task, 3, views=("front",), autoreset_mode=AutoresetMode.DISABLED, **options)


@pytest.mark.parametrize("task", task_names())
def test_restored_environment_continues_identically(task: str):
    one, other, fresh = (make_envs(task, randomize=RANDOM) for _ in range(3))
    one.reset(seed=3)
    rollout(one, 0, 12)
    snapshot = {name: array.copy() for name, array in one.snapshot().items()}
    expected = rollout(one, 1, 20)
    other.reset(seed=99)
    rollout(other, 2, 5)
    first = other.restore(snapshot)
    fresh.restore(snapshot)
    assert np.array_equal(first, other._observe()) and first.dtype == np.float32
    for env in (other, fresh):
        for values, expected_values in zip(rollout(env, 1, 20), expected, strict=True):
            assert np.array_equal(values, expected_values)
    one.close(), other.close(), fresh.close()


def test_warp_backend_continues_within_rounding():
    one, other = (make_envs("lift_cube", backend="warp") for _ in range(2))
    one.reset(seed=3)
    rollout(one, 0, 6)
    snapshot = one.snapshot()
    expected = rollout(one, 1, 6)
    other.reset(seed=1)
    other.restore(snapshot)
    for values, expected_values in zip(rollout(other, 1, 6), expected, strict=True):
        if values.dtype.kind == "f":
            np.testing.assert_allclose(values, expected_values)
        else:
            assert np.array_equal(values, expected_values)
    one.close(), other.close()


def test_snapshot_of_another_environment_is_rejected():
    one, other, more = make_envs("lift_cube"), make_envs("open_drawer"), make_envs("lift_cube", randomize=RANDOM)
    more.reset(seed=0)
    few = TabletopVecEnv("lift_cube", 2, autoreset_mode=AutoresetMode.DISABLED)
    for env in (other, few):
        with pytest.raises(SimError, match="another environment"):
            one.restore(env.snapshot())
    with pytest.raises(SimError, match="another environment"):
        more.restore(one.snapshot())
    for env in (one, other, more, few):
        env.close()


def test_diverged_environment_has_no_snapshot():
    env = make_envs("lift_cube")
    env.reset(seed=0)
    env._backend.qvel[1, -6:-3] = 8e4
    env.step(np.zeros((3, 4)))
    with pytest.raises(SimError, match="environment 1 has diverged"):
        env.snapshot()
    env.reset(options={"reset_mask": np.array([False, True, False])})
    env.snapshot()
    env.close()


def test_rows_of_a_snapshot_continue_in_another_number_of_environments() -> None:
    two, three = (TabletopVecEnv("lift_cube", count, randomize=RANDOM) for count in (2, 3))
    two.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        two.step(rng.uniform(-1, 1, (2, 4)))
    rows = np.array([1, 0, 1])
    observation = three.restore(take_rows(two.snapshot(), rows))
    for _ in range(20):
        action = rng.uniform(-1, 1, (2, 4))
        assert three.instructions == tuple(two.instructions[row] for row in rows)
        observation, _, _, _, infos = two.step(action)
        copied, _, _, _, copied_infos = three.step(action[rows])
        np.testing.assert_array_equal(copied, observation[rows])
        np.testing.assert_array_equal(copied_infos["progress"], infos["progress"][rows])
    two.close()
    three.close()
