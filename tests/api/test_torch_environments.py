"""Vectors of torch tensors that are no Gymnasium class: rewards, resets of rows, ends and results of other forms."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from image_envs import (
    LENGTH,
    ROWS,
    ImageEnv,
    TorchEnvs,
    check_two_episodes_of_tensors,
    expected_rewards,
    wrap,
)

import embodied_rm as erm


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


def test_a_vector_of_tensors_pays_tensors(model: erm.ProgressRewardModel) -> None:
    env = wrap(TorchEnvs(), model, autoreset_mode="SAME_STEP")
    env.reset(seed=3)
    rewards = []
    for _ in range(2 * LENGTH):
        _, reward, terminated, truncated, _ = env.step(torch.zeros(ROWS, dtype=torch.int64))
        assert reward.dtype == torch.float32 and terminated.dtype == truncated.dtype == torch.bool
        rewards.append(reward)
    expected = expected_rewards(model, 0) + expected_rewards(model, 1)
    np.testing.assert_allclose(torch.stack(rewards), np.stack([expected] * ROWS, 1), atol=1e-6)
    assert env.device.type == "cpu" and env.reset_arguments[0] == {"seed": 3, "env_ids": None}


def test_frames_of_tensors_reach_the_model_without_a_copy_to_the_host(model: erm.ProgressRewardModel) -> None:
    received: list[type] = []

    class Recorder:
        capabilities, input_spec = model.capabilities, model.input_spec

        def reset(self, views: Any, *args: Any, **kwargs: Any) -> Any:
            received.append(type(views.frames))
            return model.reset(views, *args, **kwargs)

        def step(self, state: Any, views: Any) -> Any:
            received.append(type(views.frames))
            return model.step(state, views)

    env = wrap(TorchEnvs(), Recorder(), autoreset_mode="SAME_STEP")  # type: ignore[arg-type]
    env.reset()
    for _ in range(LENGTH):
        env.step(torch.zeros(ROWS))
    assert set(received) == {torch.Tensor}


class BatchedGymEnv(TorchEnvs, gym.Env):
    """`TorchEnvs` as a `gymnasium.Env`, as those that `gym.make` returns for Isaac Lab and ManiSkill."""

    observation_space = ImageEnv.observation_space
    action_space = gym.spaces.Discrete(2)


def test_a_batched_environment_in_wrappers_of_gymnasium_is_a_vector(model: erm.ProgressRewardModel) -> None:
    wrapped = gym.wrappers.OrderEnforcing(BatchedGymEnv())
    env = wrap(wrapped, model, autoreset_mode="SAME_STEP")
    check_two_episodes_of_tensors(env, model)
    assert env.num_envs == ROWS and env.is_vector_env


@pytest.mark.parametrize(
    ("dtype", "learned_dtype"),
    [(torch.int64, torch.float32), (torch.bool, torch.float32), (torch.float64, torch.float64),
     (torch.bfloat16, torch.bfloat16)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1)])
def test_rewards_of_any_type_and_shape_become_numbers(
    model: erm.ProgressRewardModel, dtype: torch.dtype, learned_dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    class OtherRewards(TorchEnvs):
        def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
            observation, reward, terminated, truncated, infos = super().step(actions)
            return observation, reward.to(dtype).reshape(shape), terminated.reshape(shape), truncated, infos

    env = wrap(OtherRewards(), model, autoreset_mode="SAME_STEP")
    check_two_episodes_of_tensors(env, model)
    _, reward, terminated, _, infos = env.step(torch.zeros(ROWS))
    assert reward.dtype == learned_dtype and tuple(reward.shape) == tuple(terminated.shape) == shape
    assert infos["valid_transition"].dtype == torch.bool and infos["next_potential"].shape == (ROWS,)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((None, torch.tensor([1])), {}),
        ((), {"env_ids": {1}}),
        ((), {"options": {"reset_mask": torch.tensor([[False], [True]])}}),
        ((), {"options": {"reset_ids": torch.tensor([1])}}),
        ((), {"options": {"envs_idx": [1]}}),
        ((), {"options": {"mask": torch.tensor([False, True])}}),
        ((), {"options": {"rows": (1,), "seed_of_scene": 7}}),
        ((), {"options": {"env_id": 1, "idx": 0}}),
    ],
)
def test_rows_of_a_reset_are_read_in_every_form(
    model: erm.ProgressRewardModel, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    env = wrap(TorchEnvs(), model, autoreset_mode="SAME_STEP")
    env.reset()
    env.step(torch.zeros(ROWS))
    env.reset(*args, **kwargs)
    # The first row goes on with the potential that it had; the second one begins with 0.
    infos = env.step(torch.zeros(ROWS))[4]
    assert infos["potential"][0] > 0 and infos["potential"][1] == 0


def test_rows_have_names_of_other_libraries(model: erm.ProgressRewardModel) -> None:
    class GenesisEnvs(TorchEnvs):
        def reset(self, envs_idx: Any = None) -> tuple[Any, dict]:  # type: ignore[override]
            return super().reset()

    env = wrap(GenesisEnvs(), model, autoreset_mode="SAME_STEP")
    for args, kwargs in (([[1]], {}), ([], {"envs_idx": torch.tensor([1])})):
        env.reset()
        env.step(torch.zeros(ROWS))
        env.reset(*args, **kwargs)
        potential = env.step(torch.zeros(ROWS))[4]["potential"]
        assert potential[0] > 0 and potential[1] == 0


def test_a_reset_that_seems_partial_is_refused(model: erm.ProgressRewardModel) -> None:
    class IsaacGymEnvs(TorchEnvs):
        def reset_idx(self, rows: Any) -> None:
            raise AssertionError("no episode would be opened")

    env = wrap(IsaacGymEnvs(), model, autoreset_mode="SAME_STEP")
    env.reset()
    with pytest.raises(ValueError, match="reset has 'which', a flag per environment"):
        env.reset(options={"which": torch.tensor([False, True])})
    with pytest.raises(AttributeError, match="reset_idx would open no episode with the model"):
        env.reset_idx(torch.tensor([1]))


@pytest.mark.parametrize("observation", [{"obs": torch.zeros(2)}, {"obs": 0, "states": 1}, torch.zeros(2, 64, 3)])
def test_a_reset_without_infos_is_refused(model: erm.ProgressRewardModel, observation: Any) -> None:
    class OldEnvs(TorchEnvs):
        def reset(self) -> Any:  # type: ignore[override]
            return observation

    with pytest.raises(ValueError, match="reset must return an observation and infos, and it returned"):
        wrap(OldEnvs(), model, autoreset_mode="SAME_STEP").reset()


@pytest.mark.parametrize("rows", [[], torch.tensor([]), set()])
def test_a_reset_of_no_rows_changes_none(model: erm.ProgressRewardModel, rows: Any) -> None:
    env = wrap(TorchEnvs(), model, autoreset_mode="SAME_STEP")
    env.reset()
    env.step(torch.zeros(ROWS))
    env.reset(env_ids=rows)
    assert (env.step(torch.zeros(ROWS))[4]["potential"] > 0).all()


def test_arguments_of_a_reset_without_names_are_refused(model: erm.ProgressRewardModel) -> None:
    class AnyArguments(TorchEnvs):
        def reset(self, *args: Any, **kwargs: Any) -> tuple[Any, dict]:
            return super().reset(*args, **kwargs)

    env = wrap(AnyArguments(), model, autoreset_mode="SAME_STEP")
    env.reset(3)
    with pytest.raises(ValueError, match="pass the arguments of reset by name: 2 were passed by position"):
        env.reset(3, torch.tensor([1]))


def test_infos_per_row_are_refused(model: erm.ProgressRewardModel) -> None:
    class InfoPerRow(TorchEnvs):
        def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
            return (*super().step(actions)[:4], [{}] * ROWS)

    env = wrap(InfoPerRow(), model, autoreset_mode="SAME_STEP")
    env.reset()
    with pytest.raises(ValueError, match="infos of a step must be one dictionary of columns, got list"):
        env.step(torch.zeros(ROWS))


def test_final_observations_of_the_ended_rows_alone_are_refused(model: erm.ProgressRewardModel) -> None:
    class EndedRowsAlone(TorchEnvs):
        def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
            *results, infos = super().step(actions)
            if "final_obs" in infos:
                infos["final_obs"]["pixels"]["top"] = infos["final_obs"]["pixels"]["top"][:1]
            return (*results, infos)

    env = wrap(EndedRowsAlone(), model, autoreset_mode="SAME_STEP")
    env.reset()
    with pytest.raises(ValueError, match="final_obs of the infos has 1 rows for the view front, and there are 2"):
        for _ in range(LENGTH):
            env.step(torch.zeros(ROWS))


def test_results_of_another_form_are_refused(model: erm.ProgressRewardModel) -> None:
    class FourValues(TorchEnvs):
        def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
            observation, reward, terminated, truncated, infos = super().step(actions)
            return observation, reward, terminated | truncated, infos

    class WrongShape(TorchEnvs):
        def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
            observation, reward, *others = super().step(actions)
            return observation, reward.reshape(1, ROWS), *others

    for env_class, message in (
        (FourValues, "it returned 4 values"),
        (WrongShape, r"the reward must have the shape \[2\]"),
    ):
        env = wrap(env_class(), model, autoreset_mode="SAME_STEP")
        env.reset()
        with pytest.raises(ValueError, match=message):
            env.step(torch.zeros(ROWS))


@pytest.mark.parametrize("options", [{"env_ids": torch.tensor([1])}, {"options": {"env_idx": [1]}},
                                     {"options": {"reset_mask": np.array([False, True])}}])  # fmt: skip
def test_rows_that_the_caller_resets_start_anew(model: erm.ProgressRewardModel, options: dict) -> None:
    env = wrap(TorchEnvs(), model, autoreset_mode="DISABLED")
    env.reset()
    before = env.step(torch.zeros(ROWS))[4]["next_potential"]
    env.reset(**options)
    infos = env.step(torch.zeros(ROWS))[4]
    assert infos["potential"][1] != before[1] and infos["potential"][0] == before[0]


def test_an_end_that_is_terminal_and_a_time_limit_is_terminal(model: erm.ProgressRewardModel) -> None:
    """Both flags in one step, as several libraries set them: nothing is bootstrapped from a terminal state."""

    class BothEnv(ImageEnv):
        def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
            observation, reward, terminated, truncated, infos = super().step(action)
            return observation, reward, terminated or truncated, terminated or truncated, infos

    env = wrap(BothEnv(), model)
    expected = [expected_rewards(model, episode, terminates=True) for episode in range(2)]
    for episode in range(2):
        env.reset()
        np.testing.assert_allclose([env.step(0)[1] for _ in range(LENGTH)], expected[episode], atol=1e-6)
    for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP):
        envs = wrap(SyncVectorEnv([BothEnv] * ROWS, autoreset_mode=mode), model)
        envs.reset()
        rewards = [envs.step(np.zeros(ROWS, int))[1][0] for _ in range(LENGTH)]
        np.testing.assert_allclose(rewards, expected[0], atol=1e-6)
