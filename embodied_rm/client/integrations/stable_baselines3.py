"""The learned reward around a `VecEnv` of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from ..autoreset import FINAL_INFO_KEY, FINAL_OBSERVATION_KEYS
from ..episode_reward import BoolArray
from ..episode_scorer import ENV_SUCCESS, MODEL_SUCCESS, ShapingConfig
from ..frame_getters import FinalFrameGetter, FrameGetter
from ..instructions import Instructions
from ..reward_client import RewardClient
from ..vector_reward import StepResult, VectorReward

TERMINAL_OBSERVATION_KEY, TIME_LIMIT_KEY = "terminal_observation", "TimeLimit.truncated"
"""Keys of a row's info: its last observation before the reset, and whether only a time limit ended its episode."""


class LearnedRewardVecEnv(VecEnvWrapper):
    """A `VecEnv` with a learned reward: the task reward plus progress, as potential-based shaping.

    Wrap the innermost `VecEnv`, below `VecMonitor`, `VecNormalize`, `VecTransposeImage` and `VecFrameStack`. The info
    of each row has the entries that `VectorReward` adds.
    """

    def __init__(
        self,
        venv: VecEnv,
        client: RewardClient,
        shaping: ShapingConfig,
        *,
        get_frames: FrameGetter,
        instructions: Instructions,
        success_source: str = ENV_SUCCESS,
        get_final_frames: Optional[FinalFrameGetter] = None,
    ) -> None:
        """Wrap a `VecEnv`.

        Args:
            venv: Vector environment; it resets an ended row within the step.
            client: Client of a reward service.
            shaping: Settings of the reward.
            get_frames: Getter of the current frames.
            instructions: Instruction of each row.
            success_source: "environment": its rewards and ends stay. "model": its rewards are ignored; sustained
                success according to the model ends the episode, earns `shaping.success_reward` and resets the row.
            get_final_frames: Getter of the frames before a reset. Its infos hold `final_obs` and `final_info`, lists of
                one entry per row. Not needed if `get_frames` is that of `frames_from_observation`.

        Raises:
            ValueError: The arguments do not fit the environment or the model.
        """
        super().__init__(venv)
        if success_source == MODEL_SUCCESS and not isinstance(venv, (DummyVecEnv, SubprocVecEnv)):
            raise ValueError(
                f"success_source={MODEL_SUCCESS} ends episodes, and {type(venv).__name__} cannot reset one row: wrap a "
                "DummyVecEnv or SubprocVecEnv, below all other wrappers"
            )
        self._reward = VectorReward(
            venv,
            client,
            shaping,
            get_frames=get_frames,
            instructions=instructions,
            success_source=success_source,
            get_final_frames=get_final_frames,
            autoreset_mode="SAME_STEP",
        )
        self.scorer = self._reward.scorer

    def reset(self) -> VecEnvObs:
        """Reset all rows and open their episodes."""
        observation = self.venv.reset()
        self._reward.reset(np.ones(self.num_envs, bool), observation)
        return observation

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step of the environment, and return its results with the learned reward, float32 [N]."""
        observation, reward, dones, infos = self.venv.step_wait()
        truncated = dones & np.array([bool(info.get(TIME_LIMIT_KEY)) for info in infos])
        final_observations = [info.get(TERMINAL_OBSERVATION_KEY) for info in infos]
        final_infos = {FINAL_OBSERVATION_KEYS[0]: final_observations, FINAL_INFO_KEY: infos}
        step = self._reward.step(StepResult(observation, reward, dones & ~truncated, truncated, final_infos))
        columns = {name: column for name, column in step.infos.items() if name not in final_infos}
        columns[TIME_LIMIT_KEY] = step.truncated
        for row, info in enumerate(infos):
            info.update({name: column[row].item() for name, column in columns.items()})
        self._reset_rows(step.terminated & ~dones, observation, infos)
        return observation, step.reward.astype(np.float32), step.terminated | step.truncated, infos

    def close(self) -> None:
        """Close the environment and delete its episodes from the service; the client stays open."""
        self.scorer.end()
        super().close()

    def _reset_rows(self, mask: BoolArray, observation: VecEnvObs, infos: Sequence[dict[str, Any]]) -> None:
        """Reset the rows whose episodes only the model ended, as the environment itself does with its own."""
        rows = np.flatnonzero(mask).tolist()
        if not rows:
            return
        reset_infos = list(self.venv.reset_infos)
        for row, (first_observation, info) in zip(rows, self.venv.env_method("reset", indices=rows)):
            infos[row][TERMINAL_OBSERVATION_KEY] = replace_row(observation, row, first_observation)
            reset_infos[row] = info
        self.venv.reset_infos = reset_infos
        self._reward.reset(mask, observation)


def replace_row(observation: Any, row: int, value: Any) -> Any:
    """Set a row of a batch of observations, in place, and return a copy of the earlier value."""
    if isinstance(observation, Mapping):
        return {key: replace_row(entry, row, value[key]) for key, entry in observation.items()}
    earlier_value = observation[row].copy()
    observation[row] = value
    return earlier_value
