"""The learned reward around a `VecEnv` of rsl-rl."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from ..episode_scorer import ENV_SUCCESS, ShapingConfig
from ..frame_getters import FinalFrameGetter, FrameGetter
from ..instructions import Instructions
from ..reward_client import RewardClient
from ..vector_reward import StepResult, VectorReward, check_model_ends

TIME_OUTS_KEY = "time_outs"
"""Key of the extras: rows whose episode a time limit ended."""


class RslRlLearnedReward(VecEnv):
    """A `VecEnv` of rsl-rl with a learned reward: the task reward plus progress, as potential-based shaping.

    The environment resets ended rows within its step. Where a class below it still has the frames before the reset, as
    those of Isaac Lab and mjlab, wrap that class instead. An episode that a time limit ended keeps its potential, even
    if it is a terminal state too: rsl-rl bootstraps from both alike. All other attributes are those of the environment.
    """

    def __init__(
        self,
        env: VecEnv,
        client: RewardClient,
        shaping: ShapingConfig,
        *,
        get_frames: FrameGetter,
        instructions: Instructions,
        success_source: str = ENV_SUCCESS,
        get_final_frames: Optional[FinalFrameGetter] = None,
    ) -> None:
        """Wrap a `VecEnv`, and open episodes at its current observations.

        Args:
            env: Environment whose episodes have started.
            client: Client of a reward service.
            shaping: Settings of the reward.
            get_frames: Getter of the current frames, for example from entries of the observation.
            instructions: Instruction of each row.
            success_source: "environment"; rsl-rl's interface cannot reset the rows that the model would end.
            get_final_frames: Getter of the frames before a reset, from the extras. Not needed if `get_frames` is that
                of `frames_from_observation` and the extras have `final_obs`.

        Raises:
            ValueError: The arguments do not fit the environment or the model.
        """
        self.env = env
        self._reward = VectorReward(
            env,
            client,
            shaping,
            get_frames=get_frames,
            instructions=instructions,
            success_source=success_source,
            get_final_frames=get_final_frames,
            autoreset_mode="SAME_STEP",
        )
        check_model_ends(self._reward.autoreset_mode, success_source)
        self.scorer = self._reward.scorer
        self._open_episodes(env.get_observations())

    @property
    def episode_length_buf(self) -> Tensor:
        """Return the steps since the start of each row's episode, int64 [N]."""
        return self.env.episode_length_buf

    @episode_length_buf.setter
    def episode_length_buf(self, value: Tensor) -> None:
        self.env.episode_length_buf = value

    def get_observations(self) -> TensorDict:
        """Return the current observations."""
        return self.env.get_observations()

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Reset all rows, if the environment can."""
        result = self.env.reset(*args, **kwargs)
        self._open_episodes(self.env.get_observations())
        return result

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Step the environment, and return its results with the learned reward, a tensor [N] on the same device."""
        observation, reward, dones, extras = self.env.step(actions)
        ended = dones.bool()
        truncated = ended & extras[TIME_OUTS_KEY].bool() if TIME_OUTS_KEY in extras else ended & ~ended
        step = self._reward.step(StepResult(observation, reward, ended & ~truncated, truncated, extras))
        return observation, step.reward, dones, step.infos

    def close(self) -> None:
        """Delete the episodes from the service, and close the environment if it can be; the client stays open."""
        self.scorer.end()
        if hasattr(self.env, "close"):
            self.env.close()

    def _open_episodes(self, observation: TensorDict) -> None:
        self._reward.reset(np.ones(self._reward.num_envs, bool), observation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["env"], name)
