"""Vector environment: determinism, independent rows, ends of episodes, divergence and rendering."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import SUCCESS_HOLD_STEPS, TabletopVecEnv


def random_actions(steps: int, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, rows, 4)).astype(np.float32)


def rollout(env: TabletopVecEnv, actions: np.ndarray, seed: int, render: bool = False) -> list[np.ndarray]:
    observations = [env.reset(seed=seed)[0]]
    for action in actions:
        observations.append(env.step(action)[0])
        if render:
            env.render_views(np.arange(0, env.num_envs, 2))
    return observations


def test_trajectory_depends_on_the_seed():
    actions = random_actions(70, 4)
    env, other = TabletopVecEnv("lift_cube", 4), TabletopVecEnv("lift_cube", 4, threads=1)
    first, second = rollout(env, actions, 5), rollout(other, actions, 5)
    assert np.array_equal(first, second)
    assert np.array_equal(rollout(env, actions, 5), first), "second run in the same environment"
    assert not np.array_equal(rollout(env, actions, 6)[0], first[0])


def test_row_does_not_depend_on_others():
    actions = random_actions(70, 6)
    together = rollout(TabletopVecEnv("open_drawer", 6), actions, 20)
    alone = rollout(TabletopVecEnv("open_drawer", 1), actions[:, 3:4], 23)
    assert all(np.array_equal(a[3], b[0]) for a, b in zip(together, alone, strict=True))


def test_rendering_changes_nothing():
    actions = random_actions(12, 4)
    env = TabletopVecEnv("lift_cube", 4)
    assert np.array_equal(rollout(env, actions, 1, render=True), rollout(TabletopVecEnv("lift_cube", 4), actions, 1))
    env.close()


def test_shape_and_order_of_views():
    env = TabletopVecEnv("lift_cube", 4, views=("wrist", "front"), image_size=48)
    env.reset(seed=0)
    views = env.render_views()
    assert views.shape == (4, 2, 48, 48, 3)
    assert views.dtype == np.uint8
    assert np.array_equal(env.render_views(np.array([3, 1])), views[[3, 1]])
    assert views[:, 1].std() > 10, "an empty image"
    assert np.array_equal(env.render_tensor(np.array([3, 1])).numpy(), views[[3, 1]])
    env.close()


def test_same_step_autoreset_equals_disabled_with_manual_reset():
    """`final_obs` of SAME_STEP is the observation of DISABLED; the observation starts the next episode."""
    actions = random_actions(60, 3)
    auto = TabletopVecEnv("lift_cube", 3)
    plain = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED)
    auto.reset(seed=2), plain.reset(seed=2)
    for t, action in enumerate(actions):
        obs, _, _, truncated, info = auto.step(action)
        true_obs, _, _, ended, true_info = plain.step(action)
        assert np.array_equal(info["final_obs"], true_obs)
        assert np.array_equal(truncated, ended)
        assert np.array_equal(info["final_info"]["progress"], true_info["progress"])
        assert truncated.all() == (t == 59)
    restarted, _ = plain.reset(options={"reset_mask": np.ones(3, np.bool_)})
    assert np.array_equal(obs, restarted)
    assert info["_final_obs"].all()


def test_reset_mask_resets_its_rows_only():
    env = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    before, *_ = env.step(random_actions(1, 3)[0])
    after, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert np.array_equal(before[[0, 2]], after[[0, 2]])
    assert not np.array_equal(before[1], after[1])


@pytest.mark.parametrize("ends", [True, False])
def test_sustained_success_optionally_ends_the_episode(ends):
    env = TabletopVecEnv("open_drawer", 2, autoreset_mode=AutoresetMode.DISABLED, ends_on_success=ends)
    env.reset(seed=0)
    address = env.model.joint("drawer").qposadr[0]
    env._backend.qpos[0, address] = 0.15
    rewards, successes = np.zeros(2), []
    for _ in range(SUCCESS_HOLD_STEPS + 2):
        _, reward, terminated, _, info = env.step(np.zeros((2, 4), np.float32))
        rewards += reward
        successes.append(bool(info["success"][0]))
        assert terminated[0] == (ends and successes[-1])
        assert not terminated[1]
    assert successes.index(True) == SUCCESS_HOLD_STEPS - 1
    assert rewards.tolist() == [1.0, 0.0], "each success is rewarded once, in its own row"


def test_diverged_environment_terminates_and_does_not_affect_others():
    actions = random_actions(6, 3)
    diverging = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED)
    healthy = TabletopVecEnv("lift_cube", 3, autoreset_mode=AutoresetMode.DISABLED)
    diverging.reset(seed=0), healthy.reset(seed=0)
    for t, action in enumerate(actions):
        if t == 3:
            diverging._backend.qvel[1] = np.nan
        obs, _, terminated, _, info = diverging.step(action)
        expected, *_ = healthy.step(action)
        assert info["diverged"].tolist() == [False, t >= 3, False]
        assert np.array_equal(terminated, info["diverged"])
        assert np.isfinite(obs).all()
        assert np.array_equal(obs[[0, 2]], expected[[0, 2]])
    _, info = diverging.reset(options={"reset_mask": np.array([False, True, False])})
    assert not diverging.step(actions[0])[4]["diverged"].any()


def test_invalid_actions_are_errors():
    env = TabletopVecEnv("lift_cube", 3)
    env.reset(seed=0)
    bad = np.zeros((3, 4), np.float32)
    bad[2, 1] = np.nan
    with pytest.raises(SimError, match="action of environment 2 is nan in dimension 1"):
        env.step(bad)
    with pytest.raises(SimError, match=r"shape \[3, 4\], got \[4, 4\]"):
        env.step(np.zeros((4, 4), np.float32))
    with pytest.raises(SimError, match=r"reset_mask must be bool \[3\]"):
        env.reset(options={"reset_mask": np.zeros(2, np.bool_)})
    with pytest.raises(SimError, match="one int or 3 of them, got 2"):
        env.reset(seed=[1, 2])
