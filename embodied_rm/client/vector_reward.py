"""The learned reward of N environments that step together, in any autoreset mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from gymnasium.vector import AutoresetMode

from .arrays import like, like_rows, merge_rows, rows_of
from .autoreset import check_no_final_observations, read_autoreset_mode, read_num_envs
from .episode_reward import BoolArray, EpisodeStep, RowIndices
from .episode_scorer import MODEL_SUCCESS, EpisodeScorer, ShapingConfig
from .frame_getters import FinalFrameGetter, FrameGetter, ObservationFrames, warn_of_overwritten_frames
from .instructions import Instructions, resolve_instructions
from .reward_client import RewardClient
from .wire import Frames


class StepResult(NamedTuple):
    """Result of one step of N environments, in Gymnasium's order. Arrays are of the kind that the environment gave."""

    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    infos: dict[str, Any]

    @classmethod
    def from_env(cls, result: Sequence[Any]) -> StepResult:
        """Return the result of an environment's step; `ValueError` unless it has Gymnasium's five values."""
        if len(result) != len(cls._fields):
            raise ValueError(
                f"step must return {', '.join(cls._fields)}, and it returned {len(result)} values: wrap the "
                "environment below an adapter to another library, not above it"
            )
        return cls(*result)


class VectorReward:
    """The episodes of N environments: call `reset` after resets, and `step` with the result of every step.

    Terminal states are scored at their own frames, never at those after the reset. If the environment resets a row
    within the step that ends it (`SAME_STEP`), these are the frames of `get_final_frames`. If the next step resets the
    row (`NEXT_STEP`), that step has reward 0. With `success_source="model"`, the caller resets the rows that only the
    model ended.

    The infos have, for all N rows: `potential`, `next_potential`, `predicted_success` (success according to the model)
    and `valid_transition` (False if the step was a reset).
    """

    def __init__(
        self,
        env: Any,
        client: RewardClient,
        shaping: ShapingConfig,
        *,
        get_frames: FrameGetter,
        instructions: Instructions,
        success_source: str,
        get_final_frames: Optional[FinalFrameGetter],
        autoreset_mode: Optional[Union[str, AutoresetMode]],
    ) -> None:
        """Read how the environment resets. The arguments, and the errors, are those of `LearnedReward`."""
        self.autoreset_mode = read_autoreset_mode(env, autoreset_mode)
        self._is_declared_by_user = autoreset_mode is not None
        if get_final_frames is None and isinstance(get_frames, ObservationFrames):
            get_final_frames = get_frames.final_frames
        check_final_frames(self.autoreset_mode, get_final_frames)
        self._env, self.num_envs = env, read_num_envs(env)
        self.scorer = EpisodeScorer(client, self.num_envs, shaping, success_source)
        self._get_frames, self._get_final_frames = get_frames, get_final_frames
        self._instructions = instructions
        self._needs_reset = np.zeros(self.num_envs, bool)

    def reset(self, mask: BoolArray, observation: Any) -> None:
        """Open new episodes in the rows of the mask, bool [N], at their current frames."""
        self._open_episodes(mask, observation)
        self._needs_reset = self._needs_reset & ~mask

    def step(self, result: StepResult) -> StepResult:
        """Return the result of a step of the environment with the learned reward."""
        observation, reward, terminated, truncated, infos = result
        if not isinstance(infos, Mapping):
            raise ValueError(f"the infos of a step must be one dictionary of columns, got {type(infos).__name__}")
        ends = [
            rows_of(flags, self.num_envs, "terminated and truncated").astype(bool) for flags in (terminated, truncated)
        ]
        was_reset = self._needs_reset
        valid_transition = ~was_reset
        ended = (ends[0] | ends[1]) & valid_transition
        final_frames = self._read_final_frames(ended, infos)

        def next_frames(rows: RowIndices) -> Frames:
            return self._next_frames(rows, ended, observation, final_frames)

        env_reward = rows_of(reward, self.num_envs, "the reward")
        step = self.scorer.step(next_frames, env_reward, ends[0], ends[1], valid_transition)
        learned_reward = np.where(valid_transition, step.reward, 0.0)
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._open_episodes(was_reset, observation)
            self._needs_reset = ended
        elif final_frames is not None:
            warn_of_overwritten_frames(final_frames, self._open_episodes(ended, observation))
        added_infos = {**step_infos(step), "valid_transition": valid_transition}
        return StepResult(
            observation,
            like(reward, learned_reward),
            like(terminated, step.transitions.terminated),
            like(truncated, ends[1] & ~step.transitions.is_success),
            {**infos, **{name: like_rows(reward, column) for name, column in added_infos.items()}},
        )

    def _open_episodes(self, mask: BoolArray, observation: Any) -> Frames:
        rows = np.flatnonzero(mask)
        if not len(rows):
            return {}
        instructions = resolve_instructions(self._instructions, self._env, self.num_envs)
        frames = self._get_frames(self._env, observation, rows)
        self.scorer.reset(rows, [instructions[row] for row in rows.tolist()], frames)
        return frames

    def _read_final_frames(self, ended: BoolArray, infos: Mapping[str, Any]) -> Optional[Frames]:
        """Return the frames of the ended rows before their reset in this step; None if no row was reset."""
        if not ended.any():
            return None
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            if not self._is_declared_by_user:
                check_no_final_observations(self.autoreset_mode, infos)
            return None
        assert self._get_final_frames is not None
        return self._get_final_frames(self._env, infos, np.flatnonzero(ended))

    def _next_frames(
        self, rows: RowIndices, ended: BoolArray, observation: Any, final_frames: Optional[Frames]
    ) -> Frames:
        """Return the frames of these rows, which include the ended ones, in the states that the step led to."""
        if final_frames is None:
            return self._get_frames(self._env, observation, rows)
        ended_rows = ended[rows]
        if ended_rows.all():
            return final_frames
        next_frames = self._get_frames(self._env, observation, rows[~ended_rows])
        return {name: merge_rows(ended_rows, final_frames[name], next_frames[name]) for name in next_frames}


def check_final_frames(mode: AutoresetMode, get_final_frames: Optional[FinalFrameGetter]) -> None:
    """Raise `ValueError` if the frames before a reset are unknown."""
    if mode is AutoresetMode.SAME_STEP and get_final_frames is None:
        raise ValueError(
            "this environment resets an ended row within the step (SAME_STEP), so its frames after the step are "
            "those of the next episode: pass get_final_frames=..., which returns the frames before the reset"
        )


def check_model_ends(mode: AutoresetMode, success_source: str) -> None:
    """Raise `ValueError` if the model ends episodes that nothing resets."""
    if success_source == MODEL_SUCCESS and mode is not AutoresetMode.DISABLED:
        raise ValueError(
            f"success_source={MODEL_SUCCESS} ends episodes, and this environment resets them itself "
            f"({mode}): make it with autoreset_mode DISABLED, and reset the rows that end by "
            "options={'reset_mask': ...}"
        )


def step_infos(step: EpisodeStep) -> dict[str, Any]:
    """Return the infos of a step, arrays [N]."""
    return {
        "potential": step.transitions.potential,
        "next_potential": step.transitions.next_potential,
        "predicted_success": step.predicted_success,
    }
