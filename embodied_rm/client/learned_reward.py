"""Wrappers with a learned reward: of one environment, of a Gymnasium vector, and of a vector of torch environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from .arrays import is_tensor, to_numpy
from .autoreset import check_no_single_autoreset, check_single_step
from .episode_scorer import ENV_SUCCESS, EpisodeScorer, ShapingConfig
from .frame_getters import FinalFrameGetter, FrameGetter
from .instructions import Instructions
from .reset_rows import bind_arguments, check_no_partial_reset, read_reset_mask, split_reset_result
from .reward_client import RewardClient
from .vector_reward import StepResult, VectorReward, check_model_ends, step_infos
from .wire import Frames

SINGLE_ROW = np.zeros(1, np.int64)


class LearnedReward(VectorWrapper):
    """A vector environment with a learned reward: the task reward plus progress, as potential-based shaping.

    The task reward is that of the environment, or a reward for success according to the model. The shaping leaves the
    optimal policy unchanged. `VectorReward` describes which frames are scored, and the infos.
    """

    def __init__(
        self,
        env: VectorEnv,
        client: RewardClient,
        shaping: ShapingConfig,
        *,
        get_frames: FrameGetter,
        instructions: Instructions,
        success_source: str = ENV_SUCCESS,
        get_final_frames: Optional[FinalFrameGetter] = None,
        autoreset_mode: Optional[Union[str, AutoresetMode]] = None,
    ) -> None:
        """Wrap a vector environment.

        Args:
            env: Environment of any autoreset mode, with arrays or tensors.
            client: Client of a reward service.
            shaping: Settings of the reward.
            get_frames: Getter of the current frames.
            instructions: Instruction of each row.
            success_source: "environment": its rewards and ends stay. "model": its rewards are ignored; sustained
                success according to the model terminates the episode and earns `shaping.success_reward`.
            get_final_frames: Getter of the frames before a reset; needed by `SAME_STEP`, unless `get_frames` is that
                of `frames_from_observation`.
            autoreset_mode: When the environment resets a row that ended: SAME_STEP, NEXT_STEP or DISABLED. None: as its
                metadata declare.

        Raises:
            ValueError: The arguments do not fit the environment or the model.
        """
        super().__init__(env)
        self._reward = VectorReward(
            env,
            client,
            shaping,
            get_frames=get_frames,
            instructions=instructions,
            success_source=success_source,
            get_final_frames=get_final_frames,
            autoreset_mode=autoreset_mode,
        )
        check_model_ends(self._reward.autoreset_mode, success_source)
        self.scorer = self._reward.scorer

    def reset(self, *, seed: Any = None, options: Optional[dict[str, Any]] = None) -> Any:
        """Reset all rows, or those of `options["reset_mask"]` or a name of `ROW_NAME_PATTERN`, such as "env_idx"."""
        # Read before the environment is reset: Gymnasium's own environments remove the mask from the options.
        mask = read_reset_mask(self.num_envs, options or {})
        observation, infos = split_reset_result(self.env.reset(seed=seed, options=options))
        self._reward.reset(mask, observation)
        return observation, infos

    def step(self, actions: Any) -> Any:
        """Step the environment, and return its results with the learned reward."""
        return tuple(self._reward.step(StepResult.from_env(self.env.step(actions))))

    def close(self, **kwargs: Any) -> Any:
        """Close the environment and delete its episodes from the service; the client stays open."""
        self.scorer.end()
        return super().close(**kwargs)


class TorchLearnedReward:
    """`LearnedReward` of a class that steps N environments with tensors, and is no Gymnasium vector.

    Its `step` returns (observation, reward, terminated, truncated, infos), as those of Isaac Lab, mjlab and ManiSkill
    do. All other attributes are those of the environment.
    """

    def __init__(self, env: Any, client: RewardClient, shaping: ShapingConfig, **options: Any) -> None:
        """Wrap an environment; the arguments are those of `LearnedReward`."""
        options = {"success_source": ENV_SUCCESS, "get_final_frames": None, "autoreset_mode": None, **options}
        self.env = env
        self._reward = VectorReward(env, client, shaping, **options)
        check_model_ends(self._reward.autoreset_mode, options["success_source"])
        self.scorer = self._reward.scorer

    def reset(self, *args: Any, **kwargs: Any) -> Any:
        """Reset all rows, or those of an argument or option of `ROW_NAME_PATTERN`, such as `env_ids`."""
        named = bind_arguments(self.env.reset, args, kwargs)
        mask = read_reset_mask(self._reward.num_envs, {**(named.get("options") or {}), **named})
        observation, infos = split_reset_result(self.env.reset(*args, **kwargs))
        self._reward.reset(mask, observation)
        return observation, infos

    def step(self, actions: Any) -> StepResult:
        """Step the environment, and return its results with the learned reward, as a tensor on the same device."""
        return self._reward.step(StepResult.from_env(self.env.step(actions)))

    def close(self) -> None:
        """Close the environment and delete its episodes from the service; the client stays open."""
        self.scorer.end()
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        check_no_partial_reset(name)
        env = self.__dict__["env"]
        return getattr(env if hasattr(env, name) else getattr(env, "unwrapped", env), name)


class SingleLearnedReward(gym.Wrapper):
    """`LearnedReward` for one environment, which the caller resets when an episode ended."""

    def __init__(
        self,
        env: gym.Env,
        client: RewardClient,
        shaping: ShapingConfig,
        *,
        get_frames: FrameGetter,
        instruction: Union[str, Callable[[Any], str]],
        success_source: str = ENV_SUCCESS,
    ) -> None:
        """Wrap an environment; the arguments are those of `LearnedReward`.

        `get_frames` gets observations with a batch axis of size 1.
        """
        super().__init__(env)
        check_no_single_autoreset(env)
        self.scorer = EpisodeScorer(client, 1, shaping, success_source)
        self._get_frames, self._instruction = get_frames, instruction

    def reset(self, **kwargs: Any) -> Any:
        """Reset the environment and open an episode."""
        observation, infos = split_reset_result(self.env.reset(**kwargs))
        instruction = self._instruction(self.env) if callable(self._instruction) else self._instruction
        frames = self._get_frames(self.env, add_batch_axis(observation), SINGLE_ROW)
        self.scorer.reset(SINGLE_ROW, [instruction], frames)
        return observation, infos

    def step(self, action: Any) -> Any:
        """Step the environment, and return its results with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(action)
        check_single_step(reward, infos, bool(terminated or truncated))

        def next_frames(rows: Any) -> Frames:
            return self._get_frames(self.env, add_batch_axis(observation), rows)

        flags = np.array([terminated], bool), np.array([truncated], bool), np.ones(1, bool)
        step = self.scorer.step(next_frames, [float(to_numpy(reward).reshape(()))], *flags)
        is_success = bool(step.transitions.is_success[0])
        infos = {**infos, **{name: column[0] for name, column in step_infos(step).items()}}
        learned_reward = float(step.reward[0])
        return observation, learned_reward, terminated or is_success, truncated and not is_success, infos

    def close(self) -> None:
        """Close the environment and delete its episode from the service; the client stays open."""
        self.scorer.end()
        super().close()


def add_batch_axis(observation: Any) -> Any:
    """Return an observation of one environment as that of a vector of one."""
    if isinstance(observation, Mapping):
        return {key: add_batch_axis(value) for key, value in observation.items()}
    return observation[None] if is_tensor(observation) else np.asarray(observation)[None]
