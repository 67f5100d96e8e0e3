"""The reward and the success of running episodes, from the predictions of a reward model.

Training, the client of the reward service and the audit all step an `EpisodeReward`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Optional, Protocol

import numpy as np
import numpy.typing as npt

from .shaping import (
    BoolArray,
    FloatArray,
    hold_potential,
    potential_lower_bound,
    select_success_threshold,
    shaped_reward,
    update_success_streak,
)

RowIndices = npt.NDArray[np.int64]

STATE_FIELDS = ("potential", "steps_since_score", "success_streak", "success_prob", "potential_change")
"""Arrays [N] that an `EpisodeReward` carries from step to step."""


@dataclass(frozen=True)
class Transitions:
    """Transitions of N environments: arrays [N], or [T, N] of a rollout. An unscored step keeps the last score."""

    task_reward: FloatArray
    """Reward of the task itself; `RewardConfig.success_reward` at success, else 0."""
    is_success: BoolArray
    """Whether the step ended the episode as a success."""
    terminated: BoolArray
    """Whether the episode ended in success or failure."""
    done: BoolArray
    """Whether the episode ended, time limits included."""
    potential: FloatArray
    """Phi of the state before the step, in [0, 1]."""
    next_potential: FloatArray
    """Phi of the true state after the step, before any reset."""
    potential_change: FloatArray
    """Change of the potential at the last score of the episode, this step included; 0 before the first score."""
    success_prob: FloatArray
    """Probability in [0, 1] that the task is done after the step."""
    embedding: FloatArray | None = None
    """[..., D]: embedding of the state after the step by the reward model."""
    contribution: FloatArray | None = None
    """Share of the episode's success that is attributed to the step."""
    preference_reward: FloatArray | None = None
    """Reward of the step that a policy implies which was trained on pairs of better and worse episodes."""
    outcome_reward: FloatArray | None = None
    """Reward of the step that a policy implies which was trained on the outcomes of episodes."""
    program_reward: FloatArray | None = None
    """Reward of the step that a reward program computes from the state after it."""
    diverged: BoolArray | None = None
    """Whether the simulation diverged in the step, which ended the episode; None: nowhere."""

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return name -> array for the columns that are set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: column for name, column in values.items() if column is not None}

    @classmethod
    def stack(cls, transitions: Sequence[Transitions]) -> Transitions:
        """Stack T transitions [N] into one rollout [T, N]."""
        names = transitions[0].columns()
        return cls(**{name: np.stack([getattr(step, name) for step in transitions]) for name in names})


class ScoringConfig(Protocol):
    """Settings that turn predictions into potentials and successes; `RewardConfig` describes each."""

    @property
    def progress_scale(self) -> float: ...
    @property
    def score_every(self) -> int: ...
    @property
    def uncertainty_penalty(self) -> float: ...
    @property
    def success_threshold(self) -> Optional[float]: ...
    @property
    def success_patience(self) -> int: ...


class ScoredFrames(Protocol):
    """Predictions of a reward model for n frames, arrays [n]."""

    @property
    def progress(self) -> npt.NDArray[Any]: ...
    @property
    def valid(self) -> npt.NDArray[Any]: ...
    @property
    def success(self) -> npt.NDArray[Any]: ...
    @property
    def uncertainty(self) -> npt.NDArray[Any]: ...


class EpisodeStep(NamedTuple):
    """Result of one step of N episodes."""

    reward: FloatArray
    """[N]: the reward; NaN where the simulation diverged."""
    predicted_success: BoolArray
    """[N]: whether the model predicted success often enough in a row, at this step."""
    frame_success: BoolArray
    """[N]: whether the prediction of this step is a success, regardless of the ones before it."""
    truncated: BoolArray
    """[N]: whether the episode ended without success or failure."""
    transitions: Transitions
    """Inputs of the reward; `transitions.is_success` ended the episode."""


RewardFn = Callable[[Transitions], FloatArray]
"""Transitions -> rewards of the same shape."""


class EpisodeReward:
    """Rewards and successes of N running episodes.

    Per step: call `rows_to_score`, score the frames of these rows with a reward model, then call `step`. After an
    episode ended, call `reset` for its row.
    """

    def __init__(
        self,
        num_envs: int,
        config: ScoringConfig,
        gamma: float,
        compute_reward: RewardFn | None = None,
        fitted_threshold: Optional[float] = None,
    ) -> None:
        """Start without episodes; `reset` opens them.

        Args:
            num_envs: Number of environments N.
            config: Settings of the reward.
            gamma: Discount of the learner, in (0, 1].
            compute_reward: Reward of transitions [N]; None: the task reward plus potential-based shaping.
            fitted_threshold: Success threshold of the model, which applies where the config has none.
        """
        self._config, self._gamma = config, gamma
        self._success_threshold = select_success_threshold(config.success_threshold, fitted_threshold)
        self._compute_reward = self._shaped_reward if compute_reward is None else compute_reward
        self._potential: FloatArray = np.zeros(num_envs, np.float32)
        self._steps_since_score = np.zeros(num_envs, np.int64)
        self._success_streak = np.zeros(num_envs, np.int64)
        self._success_prob = np.zeros(num_envs)
        self._potential_change = np.zeros(num_envs)

    def reset(self, rows: RowIndices, potential: npt.ArrayLike) -> None:
        """Open new episodes in `rows`, whose first states have the given potentials [n]."""
        # The arrays of earlier steps are with the caller: they are replaced and never written to.
        if len(rows) == len(self._potential):
            self._potential = np.zeros_like(self._potential, np.asarray(potential).dtype)
        self._potential = _put(self._potential, rows, potential)
        self._steps_since_score = _put(self._steps_since_score, rows, 0)
        self._success_streak = _put(self._success_streak, rows, 0)
        self._success_prob = _put(self._success_prob, rows, 0.0)
        self._potential_change = _put(self._potential_change, rows, 0.0)

    def rows_to_score(self, ended: BoolArray, active: BoolArray | None = None) -> RowIndices:
        """Count a step, and return the rows whose frames must be scored for `step`.

        `ended`: bool [N], whether the environment ended the episode in this step; its last frame is always scored.
        `active`: bool [N], rows that took a step; None: all. Other rows are neither counted nor scored.
        """
        active = np.ones(len(ended), bool) if active is None else active
        self._steps_since_score = self._steps_since_score + active
        return np.flatnonzero(active & (ended | (self._steps_since_score >= self._config.score_every)))

    def step(
        self,
        rows: RowIndices,
        prediction: ScoredFrames | None,
        *,
        task_reward: npt.ArrayLike,
        terminated: BoolArray,
        truncated: BoolArray,
        task_success: BoolArray | None = None,
        diverged: BoolArray | None = None,
    ) -> EpisodeStep:
        """Return the rewards and successes of one step.

        Args:
            rows: int [n], the rows that were scored, as `rows_to_score` returned them.
            prediction: Their predictions [n]; None if `rows` is empty.
            task_reward: Rewards [N] of the task; with `task_success=None`, the reward of a success.
            terminated: bool [N], episodes that the environment ended, by failure or success.
            truncated: bool [N], episodes that reached the time limit.
            task_success: bool [N], successes according to the environment, which end episodes.
                None: the successes of the model end episodes and earn `task_reward`.
            diverged: bool [N], rows whose simulation diverged. They are truncated, with reward NaN.
        """
        next_potential, predicted_success, frame_success = self._update(rows, prediction)
        is_success = predicted_success if task_success is None else task_success
        if task_success is None:
            task_reward = np.asarray(task_reward) * is_success
        diverged_rows = np.zeros(len(terminated), bool) if diverged is None else diverged
        terminated = (terminated | is_success) & ~diverged_rows
        truncated = (truncated & ~terminated) | diverged_rows
        transitions = Transitions(
            task_reward=np.asarray(task_reward),
            is_success=is_success,
            terminated=terminated,
            done=terminated | truncated,
            potential=self._potential,
            next_potential=next_potential,
            potential_change=self._potential_change,
            success_prob=self._success_prob,
            diverged=diverged,
        )
        self._potential = next_potential
        reward = self._compute_reward(transitions)
        if diverged is not None:
            reward = np.where(diverged, np.nan, reward)
        return EpisodeStep(reward, predicted_success, frame_success, truncated, transitions)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return a copy of all state, name -> array [N]."""
        return {name: getattr(self, f"_{name}").copy() for name in STATE_FIELDS}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Restore the state that `state_dict` returned."""
        for name in STATE_FIELDS:
            setattr(self, f"_{name}", np.array(state[name]))

    def _shaped_reward(self, transitions: Transitions) -> FloatArray:
        potentials = transitions.potential, transitions.next_potential
        scale = self._config.progress_scale
        return shaped_reward(transitions.task_reward, *potentials, transitions.terminated, self._gamma, scale=scale)

    def _update(self, rows: RowIndices, prediction: ScoredFrames | None) -> tuple[FloatArray, BoolArray, BoolArray]:
        """Return the next potentials [N], sustained successes [N] and predicted successes [N]."""
        predicted_success = np.zeros(len(self._potential), bool)
        frame_success = np.zeros(len(self._potential), bool)
        if prediction is None:
            return self._potential, predicted_success, frame_success
        config, valid = self._config, prediction.valid
        is_positive = prediction.success >= self._success_threshold
        streak = update_success_streak(self._success_streak[rows], is_positive, valid)
        frame_success[rows] = valid & is_positive
        predicted_success[rows] = valid & (streak >= config.success_patience)
        has_success_prob = valid & ~np.isnan(prediction.success)
        success_prob = np.where(has_success_prob, prediction.success, self._success_prob[rows])
        scored = np.zeros(len(self._potential), bool)
        scored[rows] = valid
        potential = potential_lower_bound(prediction.progress, prediction.uncertainty, config.uncertainty_penalty)
        scored_potential = _put(self._potential, rows, potential)
        change = np.where(scored, scored_potential - self._potential, self._potential_change)
        self._steps_since_score = _put(self._steps_since_score, rows, 0)
        self._success_streak = _put(self._success_streak, rows, streak)
        self._success_prob = _put(self._success_prob, rows, success_prob)
        self._potential_change = change
        return hold_potential(self._potential, scored_potential, scored), predicted_success, frame_success


def score_mask(length: int, score_every: int) -> BoolArray:
    """Return which frames [T] of a clip are scored: every `score_every`-th and the last, never the first."""
    frames = np.arange(length)
    return (frames > 0) & ((frames % score_every == 0) | (frames == length - 1))


def _put(values: npt.NDArray[Any], rows: RowIndices, new_values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return a copy of `values` with `rows` replaced."""
    updated = values.copy()
    updated[rows] = new_values
    return updated
