"""Environments as libraries make them: how they reset, where their frames are, and vectors of torch tensors."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import embodied_rm as erm
from embodied_rm.client import CopyObservation, frames_from_observation, frames_from_render

GAMMA = 0.9
LENGTH = 3
ROWS = 2


def image(episode: int, t: int) -> np.ndarray:
    return np.random.default_rng([episode, t]).integers(0, 256, (64, 64, 3), np.uint8)


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


def expected_rewards(model: erm.ProgressRewardModel, episode: int, *, terminates: bool | None = None) -> list[float]:
    """By the definition: gamma Phi(s') - Phi(s), Phi of a terminal state being 0; odd episodes end by a time limit."""
    phi = model.score(np.stack([image(episode, t) for t in range(LENGTH + 1)]), "go").progress.astype(np.float64)
    if terminates or (terminates is None and episode % 2 == 0):
        phi[LENGTH] = 0
    return (GAMMA * phi[1:] - phi[:-1]).tolist()


class ImageEnv(gym.Env):
    """Shows known images, and ends after three steps: even episodes terminate, odd ones are truncated."""

    observation_space = gym.spaces.Dict(
        {"pixels": gym.spaces.Dict({"top": gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)})}
    )
    action_space = gym.spaces.Discrete(2)

    def __init__(self, reuse_buffer: bool = False) -> None:
        self.episode, self.t = -1, 0
        self.buffer = np.empty((64, 64, 3), np.uint8) if reuse_buffer else None

    def observe(self) -> dict[str, dict[str, np.ndarray]]:
        frame = image(self.episode, self.t)
        if self.buffer is not None:
            self.buffer[:] = frame
            frame = self.buffer
        return {"pixels": {"top": frame}}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.t += 1
        ended, terminates = self.t == LENGTH, self.episode % 2 == 0
        return self.observe(), 0.0, ended and terminates, ended and not terminates, {}


class BatchedEnv(gym.vector.VectorEnv):
    """Two rows that reset within the step, as ManiSkill's vector: final observations are batched."""

    def __init__(self, metadata: dict[str, Any], key: str = "final_observation") -> None:
        self.num_envs, self.metadata, self.key = ROWS, metadata, key
        self.single_observation_space = ImageEnv.observation_space
        self.single_action_space = gym.spaces.Discrete(2)
        self.episode, self.t = -1, 0

    def observe(self) -> dict[str, dict[str, np.ndarray]]:
        return {"pixels": {"top": np.stack([image(self.episode, self.t)] * ROWS)}}

    def reset(self, *, seed: Any = None, options: dict | None = None) -> tuple[Any, dict]:
        self.episode, self.t = self.episode + 1, 0
        return self.observe(), {}

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict]:
        self.t += 1
        ended, infos = np.full(ROWS, self.t == LENGTH), {}
        terminated = ended & (self.episode % 2 == 0)
        if ended.any():
            infos = {self.key: self.observe(), f"_{self.key}": ended}
            self.reset()
        return self.observe(), np.zeros(ROWS), terminated, ended & ~terminated, infos


def wrap(env: Any, model: erm.ProgressRewardModel, **options: Any) -> Any:
    options.setdefault("get_frames", frames_from_observation(front="pixels/top"))
    return erm.LearnedReward(env, model, instruction="go", gamma=GAMMA, **options)


def check_two_episodes(env: Any, model: erm.ProgressRewardModel) -> None:
    """Two episodes in a row pay what the definition says, in each row."""
    env.reset(seed=0)
    rewards = np.stack([np.asarray(env.step(np.zeros(ROWS, int))[1]) for _ in range(2 * LENGTH)])
    expected = expected_rewards(model, 0) + expected_rewards(model, 1)
    np.testing.assert_allclose(rewards, np.stack([expected] * ROWS, 1), atol=1e-6)


@pytest.mark.parametrize("spelling", [AutoresetMode.SAME_STEP, "SAME_STEP", "SameStep", "same-step", "same_step"])
@pytest.mark.parametrize("declared_by", ["metadata", "argument"])
@pytest.mark.parametrize("key", ["final_obs", "final_observation"])
def test_every_spelling_of_the_mode_and_of_final_observations_is_read(
    model: erm.ProgressRewardModel, spelling: Any, declared_by: str, key: str
) -> None:
    metadata = {"autoreset_mode": spelling} if declared_by == "metadata" else {}
    options = {"autoreset_mode": spelling} if declared_by == "argument" else {}
    check_two_episodes(wrap(BatchedEnv(metadata, key), model, **options), model)


def test_final_observations_of_gymnasiums_own_vectors_are_read(model: erm.ProgressRewardModel) -> None:
    envs = SyncVectorEnv([ImageEnv] * ROWS, autoreset_mode=AutoresetMode.SAME_STEP)
    check_two_episodes(wrap(envs, model), model)


def test_an_environment_that_declares_no_mode_is_refused(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(
        ValueError, match=r"BatchedEnv does not declare when it resets .* pass autoreset_mode='SAME_STEP'"
    ):
        wrap(BatchedEnv({}), model)
    with pytest.raises(
        ValueError, match="unknown autoreset_mode 'sometimes': expected SAME_STEP, NEXT_STEP or DISABLED"
    ):
        wrap(BatchedEnv({}), model, autoreset_mode="sometimes")


@pytest.mark.parametrize("mode", ["NEXT_STEP", "DISABLED"])
@pytest.mark.parametrize("key", ["final_obs", "final_observation", "final_info"])
def test_a_wrong_declaration_is_found_when_an_episode_ends(model: erm.ProgressRewardModel, mode: str, key: str) -> None:
    env = wrap(BatchedEnv({"autoreset_mode": mode}, key), model)
    env.reset()
    with pytest.raises(ValueError, match=f"declares {mode}, and its infos have '{key}'"):
        for _ in range(LENGTH):
            env.step(np.zeros(ROWS, int))


def test_one_environment_that_resets_itself_is_refused(model: erm.ProgressRewardModel) -> None:
    env = gym.wrappers.TransformReward(gym.wrappers.Autoreset(ImageEnv()), float)
    with pytest.raises(ValueError, match="leave out the wrapper Autoreset: one environment must not reset itself"):
        wrap(env, model)
    with pytest.raises(ValueError, match="autoreset_mode='same-step': one environment must not reset itself"):
        wrap(ImageEnv(), model, autoreset_mode="same-step")
    assert wrap(ImageEnv(), model, autoreset_mode="DISABLED").reset()


class StepsWithInfos(gym.Wrapper):
    """Returns other infos and another reward than its environment."""

    def __init__(self, env: gym.Env, infos: dict[str, Any], reward: Any = 0.0) -> None:
        super().__init__(env)
        self.infos, self.reward = infos, reward

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, _ = super().step(action)
        return observation, self.reward, terminated, truncated, self.infos


def test_one_environment_that_seems_to_reset_itself_is_refused_at_an_end(model: erm.ProgressRewardModel) -> None:
    env = wrap(StepsWithInfos(ImageEnv(), {"final_observation": image(0, LENGTH)}), model)
    env.reset()
    with pytest.raises(ValueError, match="infos of an ended episode have 'final_observation': one environment must"):
        for _ in range(LENGTH):
            env.step(0)


def test_several_environments_without_num_envs_are_refused(model: erm.ProgressRewardModel) -> None:
    env = wrap(StepsWithInfos(ImageEnv(), {}, reward=np.zeros(2)), model)
    env.reset()
    with pytest.raises(ValueError, match="step returned 2 rewards: an environment that steps several needs"):
        env.step(0)
    one = wrap(StepsWithInfos(ImageEnv(), {}, reward=torch.zeros(1)), model)
    one.reset()
    assert isinstance(one.step(0)[1], float)


def test_an_episode_that_ends_without_its_final_observation_is_refused(model: erm.ProgressRewardModel) -> None:
    env = wrap(BatchedEnv({}, key="last"), model, autoreset_mode="SAME_STEP")
    env.reset()
    with pytest.raises(ValueError, match="neither final_obs nor final_observation; they have _last, last"):
        for _ in range(LENGTH):
            env.step(np.zeros(ROWS, int))


def test_a_missing_entry_is_refused_with_those_that_are_there(model: erm.ProgressRewardModel) -> None:
    env = wrap(BatchedEnv({}), model, autoreset_mode="DISABLED", get_frames=frames_from_observation(front="image"))
    with pytest.raises(ValueError, match="the observation has no entry 'image'; it has pixels/top"):
        env.reset()


def test_overwritten_final_observations_are_noticed_and_copied(model: erm.ProgressRewardModel) -> None:
    def make(wrapper: Any) -> SyncVectorEnv:
        return SyncVectorEnv([lambda: wrapper(ImageEnv(reuse_buffer=True))] * ROWS, autoreset_mode="SameStep")

    overwritten = wrap(make(lambda env: env), model)
    overwritten.reset()
    with pytest.warns(UserWarning, match="one buffer\\? Wrap each environment in CopyObservation"):
        for _ in range(LENGTH):
            overwritten.step(np.zeros(ROWS, int))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_two_episodes(wrap(make(CopyObservation), model), model)


class TorchEnvs:
    """Two rows of tensors that are no Gymnasium class, as those of Isaac Lab and mjlab; they reset within the step."""

    is_vector_env = True
    num_envs = ROWS
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.inner = BatchedEnv({}, "final_obs")
        self.reset_arguments: list[dict[str, Any]] = []

    def reset(self, seed: int | None = None, env_ids: Any = None, options: dict | None = None) -> tuple[Any, dict]:
        self.reset_arguments.append({"seed": seed, "env_ids": env_ids})
        return to_tensors(self.inner.reset()[0]), {}

    def step(self, actions: torch.Tensor) -> tuple[Any, ...]:
        assert isinstance(actions, torch.Tensor)
        return tuple(to_tensors(part) for part in self.inner.step(actions))

    def close(self) -> None:
        pass


def to_tensors(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: to_tensors(entry) for key, entry in value.items()}
    if value.dtype == np.float64:
        value = value.astype(np.float32)
    return torch.from_numpy(value)


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


def check_two_episodes_of_tensors(env: Any, model: erm.ProgressRewardModel) -> None:
    env.reset(seed=0)
    rewards = torch.stack([env.step(torch.zeros(ROWS))[1].reshape(ROWS) for _ in range(2 * LENGTH)])
    expected = expected_rewards(model, 0) + expected_rewards(model, 1)
    tolerance = 1e-2 if rewards.dtype == torch.bfloat16 else 1e-6
    np.testing.assert_allclose(rewards.double(), np.stack([expected] * ROWS, 1), atol=tolerance)


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


def test_other_objects_and_images_are_refused(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(erm.UserError, match="list is no environment: it has no reset and step"):
        wrap([], model)
    with pytest.raises(erm.UserError, match="TorchEnvs draws nothing"):
        wrap(TorchEnvs(), model, get_frames=None, autoreset_mode="SAME_STEP")
    floats = wrap(TorchEnvs(), model, autoreset_mode="SAME_STEP",
                  get_frames=lambda env, observation, rows: {"front": observation["pixels"]["top"][rows] / 255},
                  get_final_frames=lambda *args: {})  # fmt: skip
    with pytest.raises(erm.UserError, match="frames must be uint8"):
        floats.reset()
    with pytest.raises(ValueError, match="pass get_final_frames"):
        wrap(BatchedEnv({}), model, autoreset_mode="SAME_STEP", get_frames=frames_from_render())
