"""rsl-rl: rewards by value, terminal images from the extras, time-outs, and training with its runner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from known_rewards import DONE, GAMMA, MODEL_SUCCESS, REWARDS, STEPS, KnownImageEnv, KnownImageModel
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

import embodied_rm as erm
from embodied_rm.client import frames_from_observation
from embodied_rm.client.integrations.rsl_rl import RslRlLearnedReward

ROWS = 2


class KnownImageVecEnv(VecEnv):
    """`KnownImageEnv` as rsl-rl's environments are: tensors, observation groups, resets within the step."""

    num_envs, num_actions, max_episode_length, device, cfg = ROWS, 1, 3, torch.device("cpu"), {}

    def __init__(self) -> None:
        self.envs = SyncVectorEnv(
            [lambda row=row: KnownImageEnv(row) for row in range(ROWS)], autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.episode_length_buf = torch.zeros(ROWS, dtype=torch.long)
        self.reset()

    def reset(self) -> tuple[TensorDict, dict]:
        self.observation = to_groups(self.envs.reset()[0])
        return self.observation, {}

    def get_observations(self) -> TensorDict:
        return self.observation

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        observation, reward, terminated, truncated, infos = self.envs.step(np.zeros(ROWS, int))
        self.observation = to_groups(observation)
        last = {key: entry.clone() for key, entry in self.observation.items()}
        for row in np.flatnonzero(terminated | truncated):
            for key, entry in to_groups(infos["final_obs"][row]).items():
                last[key][row] = entry
        extras = {"time_outs": torch.tensor(truncated & ~terminated), "final_obs": TensorDict(last, [ROWS])}
        dones = torch.tensor(terminated | truncated).long()
        return self.observation, torch.tensor(reward, dtype=torch.float32), dones, extras


def to_groups(observation: dict[str, np.ndarray]) -> TensorDict:
    groups = {"policy": torch.tensor(observation["state"]), "camera": torch.tensor(observation["pixels"])}
    return TensorDict(groups, batch_size=[ROWS] if observation["state"].ndim == 2 else [])


def wrap(env: Any, model: Any = None, **options: Any) -> RslRlLearnedReward:
    options.setdefault("get_frames", frames_from_observation(front="camera"))
    return erm.LearnedReward(env, model or KnownImageModel(), instruction="go", gamma=GAMMA, **options)


def run(env: Any) -> tuple[np.ndarray, np.ndarray, list[dict]]:
    """Return rewards and ends [row, step], and the extras of each step."""
    results = [env.step(torch.zeros(ROWS, 1)) for _ in range(STEPS)]
    assert all(isinstance(observation, TensorDict) for observation, *_ in results)
    _, rewards, dones, extras = zip(*results, strict=True)
    return torch.stack(rewards, 1), torch.stack(dones, 1), list(extras)


def test_rewards_are_those_computed_by_hand() -> None:
    model = KnownImageModel()
    env = wrap(KnownImageVecEnv(), model)
    assert isinstance(env, RslRlLearnedReward) and isinstance(env, VecEnv)
    for _ in range(2):
        rewards, dones, extras = run(env)
        assert rewards.dtype == torch.float32 and dones.dtype == torch.int64
        np.testing.assert_allclose(rewards, REWARDS, atol=1e-6)
        np.testing.assert_array_equal(dones, DONE)
        assert extras[1]["next_potential"].tolist() == pytest.approx([0.8, 0.6])
    assert model.kinds == {"Tensor"}, "images stay tensors"


def test_an_end_that_is_terminal_and_a_time_out_keeps_its_potential() -> None:
    """rsl-rl bootstraps from every time-out, also where the episode terminated in the same step."""

    class BothVecEnv(KnownImageVecEnv):
        def step(self, actions: torch.Tensor) -> Any:
            observation, reward, dones, extras = super().step(actions)
            return observation, reward, dones, {**extras, "time_outs": dones.bool()}

    rewards, *_ = run(wrap(BothVecEnv()))
    expected = REWARDS + GAMMA * np.array([[0, 0.8, 0, 0, 0, 1.0], [0, 0, 0, 0, 0.4, 0.6]])
    np.testing.assert_allclose(rewards, expected, atol=1e-6)


def test_an_environment_without_time_limits_has_no_time_outs() -> None:
    class NoTimeOuts(KnownImageVecEnv):
        def step(self, actions: torch.Tensor) -> Any:
            *result, extras = super().step(actions)
            return *result, {"final_obs": extras["final_obs"]}

    rewards, *_ = run(wrap(NoTimeOuts()))
    expected = REWARDS - GAMMA * np.array([[0, 0, 0.6, 0, 0, 0], [0, 0, 0.8, 0, 0, 0]])
    np.testing.assert_allclose(rewards, expected, atol=1e-6)


def test_a_reset_of_all_rows_opens_new_episodes() -> None:
    env = wrap(KnownImageVecEnv())
    env.step(torch.zeros(ROWS, 1))
    env.reset()
    assert env.step(torch.zeros(ROWS, 1))[3]["potential"].tolist() == pytest.approx([0.0, 0.2])


def test_ends_by_the_model_and_lost_terminal_images_are_refused() -> None:
    with pytest.raises(ValueError, match="success_source=model ends episodes, and this environment resets them itself"):
        wrap(KnownImageVecEnv(), **MODEL_SUCCESS)
    with pytest.raises(ValueError, match="pass get_final_frames"):
        wrap(KnownImageVecEnv(), get_frames=lambda env, observation, rows: {"front": observation["camera"][rows]})

    class NoFinalObservation(KnownImageVecEnv):
        def step(self, actions: torch.Tensor) -> Any:
            *result, extras = super().step(actions)
            return *result, {"time_outs": extras["time_outs"]}

    with pytest.raises(ValueError, match="neither final_obs nor final_observation; they have time_outs"):
        run(wrap(NoFinalObservation()))


def test_the_runner_trains_on_the_learned_reward() -> None:
    env = wrap(KnownImageVecEnv())
    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu", "obs_normalization": False}
    actor = {**network, "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}}
    config = {
        "num_steps_per_env": STEPS,
        "save_interval": 100,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": actor,
        "critic": network,
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1, "gamma": GAMMA},
    }
    runner = OnPolicyRunner(env, config, log_dir=None, device="cpu")
    runner.learn(num_learning_iterations=2, init_at_random_ep_len=True)
    assert env.env.episode_length_buf is env.episode_length_buf
