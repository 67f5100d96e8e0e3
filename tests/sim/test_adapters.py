"""Unmodified Stable-Baselines3 and rsl-rl train on the simulator and get the correct ends of episodes."""

import gymnasium as gym
import numpy as np
import pytest
import rsl_rl_ppo
import sb3_ppo
import torch
from gymnasium.vector import AutoresetMode
from progress_reward import ProgressReward
from stable_baselines3 import SAC
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from embodied_sim.adapters.rsl_rl import OBS_GROUP, RslRlVecEnv
from embodied_sim.adapters.sb3 import Sb3VecEnv
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.sim_errors import SimError
from embodied_sim.vec_env import TabletopVecEnv

LIFT, ROWS, LIMIT = "embodied_rm/LiftCube-v0", 8, 60


@pytest.fixture
def envs():
    env = TabletopVecEnv("lift_cube", ROWS)
    yield env
    env.close()


@pytest.fixture
def no_reset_envs():
    """Equal environments without autoreset: their last step shows the true end of the episode."""
    env = TabletopVecEnv("lift_cube", ROWS, autoreset_mode=AutoresetMode.DISABLED)
    yield env
    env.close()


def play_expert(env: TabletopVecEnv, step, steps: int):
    """Yield the results of `steps` calls of `step(actions)` by the expert, in environments with autoreset."""
    expert = ScriptedPolicy(env)
    expert.reset(np.arange(env.num_envs))
    for _ in range(steps):
        result = step(expert.act())
        expert.reset(np.flatnonzero(np.asarray(result[2])))
        yield result


def test_sb3_replay_buffer_holds_final_observations_and_timeouts(envs, no_reset_envs):
    """SAC stores `terminal_observation` as the next observation; replaying its actions leads there."""
    learner = SAC("MlpPolicy", Sb3VecEnv(envs), learning_starts=10**6, buffer_size=ROWS * 70, seed=3, device="cpu")
    learner.learn(ROWS * (LIMIT + 5))
    buffer = learner.replay_buffer
    expected, _ = no_reset_envs.reset(seed=3)
    for t in range(LIMIT):
        np.testing.assert_array_equal(buffer.observations[t], expected)
        expected, *_ = no_reset_envs.step(learner.policy.unscale_action(buffer.actions[t]))
        np.testing.assert_array_equal(buffer.next_observations[t], expected)
        assert (buffer.dones[t] == (t == LIMIT - 1)).all() and (buffer.timeouts[t] == (t == LIMIT - 1)).all()
    assert not np.array_equal(buffer.observations[LIMIT], expected), "the next episode starts elsewhere"


def test_sb3_infos_hold_success_before_the_reset():
    env = TabletopVecEnv("lift_cube", ROWS, ends_on_success=True)
    adapter = Sb3VecEnv(env)
    adapter.seed(0), adapter.reset()
    ends = 0
    for _, rewards, dones, infos in play_expert(env, adapter.step, 50):
        for row, info in enumerate(infos):
            assert dones[row] == ("terminal_observation" in info) == info["is_success"] == info["success"]
            assert not info["TimeLimit.truncated"], "a success is not a time limit"
            if dones[row]:
                assert info["progress"] == 1 and rewards[row] == 1
                assert info["terminal_observation"][2] > 0.1, "the tool is up, as at the end of a lift"
                ends += 1
    assert ends >= ROWS - 1
    adapter.close()


def test_sb3_trains():
    learner = sb3_ppo.train(LIFT, ROWS, num_steps=3 * 64 * ROWS)
    assert learner.num_timesteps == 3 * 64 * ROWS
    assert {episode["l"] for episode in learner.ep_info_buffer} == {LIMIT}
    assert len(learner.ep_success_buffer) == len(learner.ep_info_buffer) == 3 * ROWS
    assert all(torch.isfinite(p).all() for p in learner.policy.parameters())
    fresh = sb3_ppo.train(LIFT, ROWS, num_steps=0)
    moved = [(a - b).abs().max() for a, b in zip(learner.policy.parameters(), fresh.policy.parameters(), strict=True)]
    assert min(moved) > 0, "every layer was updated"


def test_sb3_wrappers_work(envs):
    env = VecNormalize(VecMonitor(Sb3VecEnv(envs)))
    env.seed(1)
    assert env.reset().shape == (ROWS, envs.single_observation_space.shape[0])
    assert env.get_attr("instructions", 0) == [envs.instructions]
    assert env.get_attr("render_mode") == [None] * ROWS
    for mistake in (lambda: env.set_attr("task", None), lambda: env.env_method("reset")):
        with pytest.raises(SimError, match="on the vector environment"):
            mistake()
    env.set_options({"reset_mask": None})
    with pytest.raises(SimError, match="no options"):
        env.reset()


def test_rsl_rl_gets_final_observations_and_time_outs(envs, no_reset_envs):
    adapter = RslRlVecEnv(envs, seed=5)
    expected, _ = no_reset_envs.reset(seed=5)
    np.testing.assert_array_equal(adapter.get_observations()[OBS_GROUP].numpy(), expected)
    actions = torch.rand((LIMIT, ROWS, 4), generator=torch.Generator().manual_seed(0)) * 2 - 1
    for t in range(LIMIT):
        assert (adapter.episode_length_buf == t).all()
        observations, rewards, dones, extras = adapter.step(actions[t])
        expected, *_ = no_reset_envs.step(actions[t].numpy())
        np.testing.assert_array_equal(extras["final_obs"][OBS_GROUP].numpy(), expected)
        assert (dones == (t == LIMIT - 1)).all() and torch.equal(extras["time_outs"], dones.bool())
        assert ("log" in extras) == (t == LIMIT - 1)
        assert rewards.dtype == torch.float32
    assert extras["log"] == {"Episode/success": 0.0}
    assert not np.array_equal(observations[OBS_GROUP].numpy(), expected), "the next episode has started"
    assert torch.equal(adapter.get_observations()[OBS_GROUP], observations[OBS_GROUP])
    assert (adapter.episode_length_buf == 0).all() and adapter.max_episode_length == LIMIT


def test_rsl_rl_success_is_not_a_time_out():
    env = TabletopVecEnv("lift_cube", ROWS, ends_on_success=True)
    adapter = RslRlVecEnv(env, seed=0)
    ends = 0
    for _, rewards, dones, extras in play_expert(env, lambda a: adapter.step(torch.from_numpy(a)), 50):
        assert not extras["time_outs"].any()
        assert torch.equal(rewards, dones.float())
        ends += int(dones.sum())
        assert extras.get("log", {"Episode/success": 1.0}) == {"Episode/success": 1.0}
    assert ends >= ROWS - 1
    env.close()


def test_rsl_rl_trains(tmp_path):
    runner = rsl_rl_ppo.train(LIFT, ROWS, iterations=2, log_dir=str(tmp_path))
    assert runner.logger.tot_timesteps == 2 * 64 * ROWS
    assert set(runner.logger.lenbuffer) == {LIMIT}
    assert (tmp_path / "model_1.pt").exists()
    fresh = rsl_rl_ppo.train(LIFT, ROWS, iterations=0, log_dir=None)
    for trained, initial in ((runner.alg.actor, fresh.alg.actor), (runner.alg.critic, fresh.alg.critic)):
        assert all(torch.isfinite(p).all() for p in trained.parameters())
        moved = [(a - b).abs().max() for a, b in zip(trained.parameters(), initial.parameters(), strict=True)]
        assert min(moved) > 0, "every layer was updated"


def test_rsl_rl_episode_length_cannot_be_set(envs):
    with pytest.raises(SimError, match="init_at_random_ep_len=False"):
        RslRlVecEnv(envs).episode_length_buf = torch.ones(ROWS)


def test_progress_reward_of_the_example_sums_to_progress(envs):
    """The return of an episode is its progress plus 1 for success; resets add nothing."""
    env = ProgressReward(envs)
    _, infos = env.reset(seed=0)
    total, start_progress = np.zeros(ROWS), infos["progress"]
    for result in play_expert(envs, lambda a: merge_dones(env.step(a)), LIMIT):
        total += result[1]
    *_, truncated, infos = result
    assert truncated.all()
    progress_gain = infos["final_info"]["progress"] - start_progress
    np.testing.assert_allclose(total, progress_gain + infos["final_info"]["success"], atol=1e-5)
    assert infos["final_info"]["success"].mean() > 0.8


def merge_dones(step):
    """Return (observation, reward, done, truncated, infos) of a Gymnasium step."""
    observation, reward, terminated, truncated, infos = step
    return observation, reward, terminated | truncated, truncated, infos


@pytest.mark.parametrize("adapter", [Sb3VecEnv, RslRlVecEnv])
def test_unsupported_environments_are_rejected(adapter, no_reset_envs):
    with pytest.raises(SimError, match=r"autoreset_mode=AutoresetMode\.SAME_STEP, got AutoresetMode\.DISABLED"):
        adapter(no_reset_envs)
    # Gymnasium's own SAME_STEP returns final observations of ended rows only, and none between ends.
    sync = gym.make_vec(LIFT, 2, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
    adapted = adapter(sync)
    adapted.reset() if isinstance(adapted, Sb3VecEnv) else None
    actions = np.zeros((2, 4), np.float32)
    with pytest.raises(SimError, match=r"'final_obs'\] must hold every row, \[2, 29\], got None"):
        adapted.step(actions if isinstance(adapted, Sb3VecEnv) else torch.from_numpy(actions))
    sync.close()
