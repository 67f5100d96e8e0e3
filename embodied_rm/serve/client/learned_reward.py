"""The learned reward around any Gymnasium environment, one or a vector of them, however it resets its episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from embodied_rm.serve.client.episode_scorer import (
    BoolArray,
    EpisodeScorer,
    FloatArray,
    PotentialStep,
    RowIndices,
    ShapingConfig,
)
from embodied_rm.serve.client.prediction import Frames
from embodied_rm.serve.client.reward_client import RewardClient

FrameGetter = Callable[[Any, Any, RowIndices], Frames]
"""(environment, its observation now, rows) -> view -> uint8 [n, H, W, 3]: what the cameras of these rows show now."""
FinalFrameGetter = Callable[[Any, Mapping[str, Any], RowIndices], Frames]
"""(environment, infos of the step, rows that ended in it) -> what their cameras showed before they were reset."""
Instructions = Union[str, Sequence[str], Callable[[Any], Sequence[str]]]
"""One for all rows, one for each, or who says them after a reset: (environment) -> one for each row."""
ENV_SUCCESS, MODEL_SUCCESS = "environment", "model"


def frames_from_render(view: str = "front") -> FrameGetter:
    """What `render()` draws, of an environment made with `render_mode="rgb_array"`, as the view of that name."""

    def get_frames(env: Any, observation: Any, rows: RowIndices) -> Frames:
        render_output = env.render()
        if render_output is None:
            raise ValueError('render() draws nothing: make the environment with render_mode="rgb_array"')
        images = (
            np.stack(render_output) if isinstance(render_output, (list, tuple)) else np.asarray(render_output)[None]
        )
        return {view: images[rows]}

    return get_frames


def frames_from_observation(**views: str) -> FrameGetter:
    """Images among the observations: `observed(front="pixels")` where `observation["pixels"]` is [N, H, W, 3]."""

    def get_frames(env: Any, observation: Any, rows: RowIndices) -> Frames:
        return {view: np.asarray(observation[key])[rows] for view, key in views.items()}

    return get_frames


class LearnedReward(VectorWrapper):
    """A vector environment that pays what a reward service says: the environment's own reward, or the model's verdict
    of success, plus progress, shaped so that no other policy becomes the best.

    Terminal states are judged by what was seen there, never by what is seen after the reset: of an environment that
    resets a row within the step that ends it (`SAME_STEP`) `final_views` must say what that was; where a row is reset
    by the next step (`NEXT_STEP`) that step pays nothing. Infos hold, dense over rows: `potential`, `next_potential`,
    `learned_success`, and `stepped` (whether the transition is one: False where the step was a reset).
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
        """`success`: "environment", its rewards and ends stay; "model", its rewards are not paid, and an episode whose
        success is sustained in the eyes of the model is paid `success_reward` and terminated.

        Raises `ValueError` for what does not fit together.
        """
        super().__init__(env)
        self._autoreset_mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if success_source not in (ENV_SUCCESS, MODEL_SUCCESS):
            raise ValueError(f"success must be {ENV_SUCCESS} or {MODEL_SUCCESS}, got {success_source!r}")
        if success_source == MODEL_SUCCESS and self._autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(
                f"success={MODEL_SUCCESS} ends episodes, and this environment resets them by itself ({self._autoreset_mode}): make it "
                "with autoreset_mode DISABLED, and reset the rows that end by options={'reset_mask': ...}"
            )
        if self._autoreset_mode is AutoresetMode.SAME_STEP and get_final_frames is None:
            raise ValueError(
                "this environment resets an ended row within the step (SAME_STEP): what its cameras show then is the "
                "next episode. Say what they showed before, final_views=..."
            )
        self.scorer = EpisodeScorer(client, env.num_envs, shaping)
        check_predicts_success(self.scorer, success_source)
        self._get_frames, self._get_final_frames, self._instructions = get_frames, get_final_frames, instructions
        self._success_source, self._success_reward = success_source, success_reward
        self._needs_reset = np.zeros(env.num_envs, bool)

    def reset(self, *, seed: Any = None, options: Optional[dict[str, Any]] = None) -> Any:
        """As the environment does, all rows or those of `options["reset_mask"]`."""
        # Looked at before the environment is reset: Gymnasium's own take the mask out of the options.
        mask = np.ones(self.num_envs, bool) if not options else np.asarray(options.get("reset_mask", True))
        observation, infos = self.env.reset(seed=seed, options=options)
        reset_rows = np.broadcast_to(mask, self.num_envs)
        self._reset_rows(reset_rows, observation)
        self._needs_reset = self._needs_reset & ~reset_rows
        return observation, infos

    def step(self, actions: Any) -> Any:
        """As the environment does, with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        was_reset, ended = self._needs_reset, (terminated | truncated) & ~self._needs_reset
        valid_transition = ~was_reset
        rows = self.scorer.rows_to_score(valid_transition, ended)
        scored = self.scorer.score(rows, self._next_frames(rows, ended, observation, infos) if len(rows) else {})
        success = scored.success & valid_transition
        base_reward: FloatArray = np.asarray(reward, np.float64)
        if self._success_source == MODEL_SUCCESS:
            base_reward, terminated = self._success_reward * success, terminated | success
            truncated = truncated & ~success
        shaped_reward = np.where(valid_transition, self.scorer.compute_reward(scored, base_reward, terminated), 0.0)
        infos = {**infos, **step_infos(scored, success), "stepped": valid_transition}
        if self._autoreset_mode is AutoresetMode.NEXT_STEP:
            self._reset_rows(was_reset, observation)
            self._needs_reset = ended
        elif self._autoreset_mode is AutoresetMode.SAME_STEP:
            self._reset_rows(ended, observation)
        return observation, shaped_reward, terminated, truncated, infos

    def close(self, **kwargs: Any) -> Any:
        """Close the environment, and have the service forget its episodes; the client stays open."""
        self.scorer.end()
        return super().close(**kwargs)

    def _reset_rows(self, reset_mask: BoolArray, observation: Any) -> None:
        rows = np.flatnonzero(reset_mask)
        if len(rows):
            instructions = resolve_instructions(self._instructions, self.env, self.num_envs)
            frames = self._get_frames(self.env, observation, rows)
            self.scorer.reset(rows, [instructions[row] for row in rows.tolist()], frames)

    def _next_frames(self, rows: RowIndices, ended: BoolArray, observation: Any, infos: Mapping[str, Any]) -> Frames:
        """What the cameras of these rows showed in the state that the step led to."""
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
    """The same around one environment, which whoever uses it resets when an episode is over."""

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
        """`views` and `success` as those of `LearnedReward`; observations have no axis of rows here."""
        super().__init__(env)
        if success_source not in (ENV_SUCCESS, MODEL_SUCCESS):
            raise ValueError(f"success must be {ENV_SUCCESS} or {MODEL_SUCCESS}, got {success_source!r}")
        self.scorer = EpisodeScorer(client, 1, shaping)
        check_predicts_success(self.scorer, success_source)
        self._get_frames, self._instruction = get_frames, instruction
        self._success_source, self._success_reward = success_source, success_reward

    def reset(self, **kwargs: Any) -> Any:
        """As the environment does."""
        observation, infos = self.env.reset(**kwargs)
        instruction = self._instruction(self.env) if callable(self._instruction) else self._instruction
        self.scorer.reset(
            SINGLE_ROW, [instruction], self._get_frames(self.env, add_batch_axis(observation), SINGLE_ROW)
        )
        return observation, infos

    def step(self, action: Any) -> Any:
        """As the environment does, with the learned reward."""
        observation, reward, terminated, truncated, infos = self.env.step(action)
        rows = self.scorer.rows_to_score(np.ones(1, bool), np.array([terminated or truncated]))
        frames = self._get_frames(self.env, add_batch_axis(observation), SINGLE_ROW) if len(rows) else {}
        scored = self.scorer.score(rows, frames)
        success = bool(scored.success[0])
        base_reward = float(reward)
        if self._success_source == MODEL_SUCCESS:
            base_reward, terminated = self._success_reward * success, terminated or success
            truncated = truncated and not success
        shaped_reward = float(self.scorer.compute_reward(scored, [base_reward], [terminated])[0])
        step_info = {name: column[0] for name, column in step_infos(scored, scored.success).items()}
        return observation, shaped_reward, terminated, truncated, {**infos, **step_info}

    def close(self) -> None:
        """Close the environment, and have the service forget its episode; the client stays open."""
        self.scorer.end()
        super().close()


SINGLE_ROW = np.zeros(1, np.int64)


def check_predicts_success(scorer: EpisodeScorer, success_source: str) -> None:
    """Raises `ValueError` where the model must say when the task is done, and does not."""
    if success_source == MODEL_SUCCESS and not scorer.predicts_success:
        raise ValueError(
            f"success={MODEL_SUCCESS} lets the model say when the task is done, and this one does not tell"
        )


def step_infos(step: PotentialStep, success: BoolArray) -> dict[str, Any]:
    """What infos say of a step."""
    return {"potential": step.potential, "next_potential": step.next_potential, "learned_success": success}


def resolve_instructions(instructions: Instructions, env: Any, num_envs: int) -> Sequence[str]:
    """What is asked for in each row."""
    if isinstance(instructions, str):
        return [instructions] * num_envs
    resolved = instructions(env) if callable(instructions) else instructions
    if len(resolved) != num_envs:
        raise ValueError(f"{num_envs} environments need {num_envs} instructions, got {len(resolved)}")
    return resolved


def merge_rows(mask: BoolArray, inside: Any, outside: Any) -> Any:
    """The rows of two arrays as one: those of the mask from the first, in their order."""
    merged = np.empty((len(mask), *outside.shape[1:]), outside.dtype)
    merged[mask], merged[~mask] = inside, outside
    return merged


def add_batch_axis(observation: Any) -> Any:
    """An observation of one environment as that of a vector of one."""
    if isinstance(observation, Mapping):
        return {key: add_batch_axis(value) for key, value in observation.items()}
    return np.asarray(observation)[None]
