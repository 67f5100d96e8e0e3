"""Gymnasium wrappers with a learned reward, for one environment or a vector of any autoreset mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from .episode_reward import BoolArray, EpisodeStep, RowIndices
from .episode_scorer import ENV_SUCCESS, MODEL_SUCCESS, EpisodeScorer, ShapingConfig
from .reward_client import RewardClient
from .wire import Frames

FrameGetter = Callable[[Any, Any, RowIndices], Frames]
"""(environment, its current observation, rows) -> view name -> uint8 [n, H, W, 3], the current frames of these rows."""
FinalFrameGetter = Callable[[Any, Mapping[str, Any], RowIndices], Frames]
"""(environment, infos of the step, rows that ended in it) -> their last frames, before they were reset."""
Instructions = Union[str, Sequence[str], Callable[[Any], Sequence[str]]]
"""One instruction for all rows, one per row, or a function of the environment, called after a reset: one per row."""
SINGLE_ROW = np.zeros(1, np.int64)


def frames_from_render(view: str = "front") -> FrameGetter:
    """Return a getter of the frames that `render()` draws, as the view of that name.

    The environment must have been made with `render_mode="rgb_array"`.
    """

    def get_frames(env: Any, observation: Any, rows: RowIndices) -> Frames:
        render_output = env.render()
        if render_output is None:
            raise ValueError('render() draws nothing: make the environment with render_mode="rgb_array"')
        is_batch = isinstance(render_output, (list, tuple))
        images = np.stack(render_output) if is_batch else np.asarray(render_output)[None]
        return {view: images[rows]}

    return get_frames


def frames_from_observation(**views: str) -> FrameGetter:
    """Return a getter of frames from dictionary observations.

    `frames_from_observation(front="pixels")` reads the view `front` from `observation["pixels"]` [N, H, W, 3].
    """

    def get_frames(env: Any, observation: Any, rows: RowIndices) -> Frames:
        return {view: np.asarray(observation[key])[rows] for view, key in views.items()}

    return get_frames


class LearnedReward(VectorWrapper):
    """A vector environment with a learned reward: the task reward plus progress, as potential-based shaping.

    The task reward is that of the environment, or a reward for success according to the model. The shaping leaves the
    optimal policy unchanged.

    Terminal states are scored at their own frames, never at those after the reset. If the environment resets a row
    within the step that ends it (`SAME_STEP`), `get_final_frames` must return the frames before the reset. If the next
    step resets the row (`NEXT_STEP`), that step has reward 0.

    The infos have, for all N rows: `potential`, `next_potential`, `predicted_success` (success according to the model)
    and `valid_transition` (False if the step was a reset).
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
        success_reward: float = 1.0,
        get_final_frames: Optional[FinalFrameGetter] = None,
    ) -> None:
        """Wrap a vector environment.

        Args:
            env: Environment of any autoreset mode.
            client: Client of a reward service.
            shaping: Settings of the reward.
            get_frames: Getter of the current frames.
            instructions: Instruction of each row.
            success_source: "environment": its rewards and ends stay. "model": its rewards are ignored; sustained
                success according to the model terminates the episode and earns `success_reward`.
            success_reward: Reward of a success according to the model.
            get_final_frames: Getter of the frames before a reset; needed by `SAME_STEP`.

        Raises:
            ValueError: The arguments do not fit the environment or the model.
        """
        super().__init__(env)
        self._autoreset_mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if success_source == MODEL_SUCCESS and self._autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(
                f"success_source={MODEL_SUCCESS} ends episodes, and this environment resets them itself "
                f"({self._autoreset_mode}): make it with autoreset_mode DISABLED, and reset the rows that end by "
                "options={'reset_mask': ...}"
            )
        if self._autoreset_mode is AutoresetMode.SAME_STEP and get_final_frames is None:
            raise ValueError(
                "this environment resets an ended row within the step (SAME_STEP), so its frames after the step are "
                "those of the next episode: pass get_final_frames=..., which returns the frames before the reset"
            )
        self.scorer = EpisodeScorer(client, env.num_envs, shaping, success_source, success_reward)
        self._get_frames, self._get_final_frames = get_frames, get_final_frames
        self._instructions = instructions
        self._needs_reset = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: Optional[dict[str, Any]] = None) -> Any:
        """Reset all rows, or those of `options["reset_mask"]`."""
        # Read before the environment is reset: Gymnasium's own environments remove the mask from the options.
        mask = np.ones(self.num_envs, bool) if not options else np.asarray(options.get("reset_mask", True))
        observation, infos = self.env.reset(seed=seed, options=options)
        reset_rows = np.broadcast_to(mask, self.num_envs)
        self._reset_rows(reset_rows, observation)
        self._needs_reset = self._needs_reset & ~reset_rows
        return observation, infos

    def step(self, actions: Any) -> Any:
        """Step the environment, and return its results with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        was_reset = self._needs_reset
        valid_transition = ~was_reset
        ended = (terminated | truncated) & valid_transition

        def next_frames(rows: RowIndices) -> Frames:
            return self._next_frames(rows, ended, observation, infos)

        step = self.scorer.step(next_frames, reward, terminated, truncated, valid_transition)
        learned_reward = np.where(valid_transition, step.reward, 0.0)
        infos = {**infos, **step_infos(step), "valid_transition": valid_transition}
        if self._autoreset_mode is AutoresetMode.NEXT_STEP:
            self._reset_rows(was_reset, observation)
            self._needs_reset = ended
        elif self._autoreset_mode is AutoresetMode.SAME_STEP:
            self._reset_rows(ended, observation)
        is_success = step.transitions.is_success
        return observation, learned_reward, step.transitions.terminated, truncated & ~is_success, infos

    def close(self, **kwargs: Any) -> Any:
        """Close the environment and delete its episodes from the service; the client stays open."""
        self.scorer.end()
        return super().close(**kwargs)

    def _reset_rows(self, reset_mask: BoolArray, observation: Any) -> None:
        rows = np.flatnonzero(reset_mask)
        if len(rows):
            instructions = resolve_instructions(self._instructions, self.env, self.num_envs)
            frames = self._get_frames(self.env, observation, rows)
            self.scorer.reset(rows, [instructions[row] for row in rows.tolist()], frames)

    def _next_frames(self, rows: RowIndices, ended: BoolArray, observation: Any, infos: Mapping[str, Any]) -> Frames:
        """Return the frames of these rows in the states that the step led to."""
        if self._autoreset_mode is not AutoresetMode.SAME_STEP or not ended[rows].any():
            return self._get_frames(self.env, observation, rows)
        assert self._get_final_frames is not None
        ended_rows = ended[rows]
        final_frames = self._get_final_frames(self.env, infos, rows[ended_rows])
        if ended_rows.all():
            return final_frames
        next_frames = self._get_frames(self.env, observation, rows[~ended_rows])
        return {name: merge_rows(ended_rows, final_frames[name], next_frames[name]) for name in next_frames}


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
        success_reward: float = 1.0,
    ) -> None:
        """Wrap an environment; the arguments are those of `LearnedReward`.

        `get_frames` gets observations with a batch axis of size 1.
        """
        super().__init__(env)
        self.scorer = EpisodeScorer(client, 1, shaping, success_source, success_reward)
        self._get_frames, self._instruction = get_frames, instruction

    def reset(self, **kwargs: Any) -> Any:
        """Reset the environment and open an episode."""
        observation, infos = self.env.reset(**kwargs)
        instruction = self._instruction(self.env) if callable(self._instruction) else self._instruction
        frames = self._get_frames(self.env, add_batch_axis(observation), SINGLE_ROW)
        self.scorer.reset(SINGLE_ROW, [instruction], frames)
        return observation, infos

    def step(self, action: Any) -> Any:
        """Step the environment, and return its results with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(action)

        def next_frames(rows: RowIndices) -> Frames:
            return self._get_frames(self.env, add_batch_axis(observation), rows)

        flags = np.array([terminated], bool), np.array([truncated], bool), np.ones(1, bool)
        step = self.scorer.step(next_frames, [float(reward)], *flags)
        is_success = bool(step.transitions.is_success[0])
        infos = {**infos, **{name: column[0] for name, column in step_infos(step).items()}}
        learned_reward = float(step.reward[0])
        return observation, learned_reward, terminated or is_success, truncated and not is_success, infos

    def close(self) -> None:
        """Close the environment and delete its episode from the service; the client stays open."""
        self.scorer.end()
        super().close()


def step_infos(step: EpisodeStep) -> dict[str, Any]:
    """Return the infos of a step, arrays [N]."""
    return {
        "potential": step.transitions.potential,
        "next_potential": step.transitions.next_potential,
        "predicted_success": step.predicted_success,
    }


def resolve_instructions(instructions: Instructions, env: Any, num_envs: int) -> Sequence[str]:
    """Return the instruction of each row."""
    if isinstance(instructions, str):
        return [instructions] * num_envs
    resolved = instructions(env) if callable(instructions) else instructions
    if len(resolved) != num_envs:
        raise ValueError(f"{num_envs} environments need {num_envs} instructions, got {len(resolved)}")
    return resolved


def merge_rows(mask: BoolArray, inside: Any, outside: Any) -> Any:
    """Merge two arrays of rows: those of the mask from `inside`, the others from `outside`, in order."""
    merged = np.empty((len(mask), *outside.shape[1:]), outside.dtype)
    merged[mask] = inside
    merged[~mask] = outside
    return merged


def add_batch_axis(observation: Any) -> Any:
    """Return an observation of one environment as that of a vector of one."""
    if isinstance(observation, Mapping):
        return {key: add_batch_axis(value) for key, value in observation.items()}
    return np.asarray(observation)[None]
