"""Episodes of N environments that a reward service judges: their potentials, and what a step of them is paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from embodied_rm.rewards.shaping import hold_potential, potential_lower_bound, shaped_reward, update_success_streak
from embodied_rm.serve.client import episode_handles
from embodied_rm.serve.client.episode_handles import EpisodeHandle
from embodied_rm.serve.client.prediction import Frames

if TYPE_CHECKING:
    from embodied_rm.serve.client.reward_client import RewardClient

RowIndices = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ShapingConfig:
    """How a prediction becomes a reward, as in `embodied-rm refine`."""

    gamma: float
    """The learner's discount: another one would not leave the best policy what it is."""
    progress_scale: float = 1.0
    """Weight of the progress: the whole task, from potential 0 to 1, is worth this much."""
    score_every: int = 1
    """Steps between two scores; an episode's end is always scored."""
    uncertainty_penalty: float = 0.0
    """Spreads of the prediction that are taken off the progress: what the model doubts is worth less."""
    success_threshold: float = 0.5
    """Probability of success from which a score counts as the verdict "done"."""
    success_patience: int = 5
    """Consecutive verdicts that are the model's "success"."""

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1], got {self.gamma}")
        if self.score_every < 1 or self.success_patience < 1:
            raise ValueError(
                f"score_every and success_patience must be >= 1, got {self.score_every} and {self.success_patience}"
            )
        if not 0 < self.success_threshold <= 1:
            raise ValueError(f"success_threshold must be in (0, 1], got {self.success_threshold}")
        if self.progress_scale < 0 or self.uncertainty_penalty < 0:
            raise ValueError(
                f"scale and caution must be >= 0, got {self.progress_scale} and {self.uncertainty_penalty}"
            )


class PotentialStep(NamedTuple):
    """What a step of N environments came to. Rows that were not `stepped` mean nothing."""

    potential: FloatArray
    """[N]: before it."""
    next_potential: FloatArray
    """[N]: after it, of the true next state."""
    success: BoolArray
    """[N]: whether success is now sustained, in the eyes of the model."""


class EpisodeScorer:
    """The episodes under way. `begin` the rows that were reset, `judge` after every step, and `pay`."""

    def __init__(self, client: RewardClient, num_envs: int, shaping: ShapingConfig) -> None:
        parameters = client.get_metadata()["parameters"]
        self.predicts_success: bool = parameters["predicts_success"]
        self.num_invalid_frames = 0
        """Frames that could not be judged; they carry the potential before them."""
        self._client, self._shaping, self._keep_state = client, shaping, bool(parameters["supports_restore"])
        self._handles: list[Optional[EpisodeHandle]] = [None] * num_envs
        self._num_episodes = np.zeros(num_envs, np.int64)
        self._potential = np.zeros(num_envs, np.float32)
        self._steps_since_score = np.zeros(num_envs, np.int64)
        self._success_streak = np.zeros(num_envs, np.int64)

    def reset(self, rows: RowIndices, instructions: Sequence[str], frames: Frames) -> None:
        """New episodes in these rows, at their first frames: potential 0."""
        episode_ids = self._num_episodes[rows].tolist()
        _, handles = episode_handles.reset_episodes(
            self._client, rows.tolist(), episode_ids, instructions, frames, keep_state=self._keep_state
        )
        self._num_episodes[rows] += 1
        for row, handle in zip(rows.tolist(), handles):
            self._handles[row] = handle
        self._potential[rows] = 0
        self._steps_since_score[rows] = self._success_streak[rows] = 0

    def rows_to_score(self, valid_transition: BoolArray, ended: BoolArray) -> RowIndices:
        """The rows, of those that took a step, whose frames are to be judged now."""
        self._steps_since_score[valid_transition] += 1
        return np.flatnonzero(valid_transition & (ended | (self._steps_since_score >= self._shaping.score_every)))

    def score(self, rows: RowIndices, frames: Frames) -> PotentialStep:
        """Judge these rows' frames, the true next states: what all rows come to."""
        potential, scored, scored_potential = (
            self._potential,
            np.zeros(len(self._potential), bool),
            self._potential.copy(),
        )
        success = np.zeros(len(potential), bool)
        if len(rows):
            handles = [self._handles[row] for row in rows.tolist()]
            if any(handle is None for handle in handles):
                raise ValueError("an environment was stepped that was never reset")
            prediction, next_handles = episode_handles.step_episodes(self._client, handles, frames)
            for row, handle in zip(rows.tolist(), next_handles):
                self._handles[row] = handle
            valid = prediction.valid
            self.num_invalid_frames += int((~valid).sum())
            scored[rows] = valid
            scored_potential[rows] = potential_lower_bound(
                prediction.progress, prediction.uncertainty, self._shaping.uncertainty_penalty
            )
            predicted_success = prediction.success >= self._shaping.success_threshold
            self._success_streak[rows] = update_success_streak(self._success_streak[rows], predicted_success, valid)
            success[rows] = valid & (self._success_streak[rows] >= self._shaping.success_patience)
            self._steps_since_score[rows] = 0
        self._potential = np.asarray(hold_potential(potential, scored_potential, scored), np.float32)
        return PotentialStep(potential, self._potential, success)

    def compute_reward(self, step: PotentialStep, reward: npt.ArrayLike, terminated: npt.ArrayLike) -> FloatArray:
        """The reward of a step, shaped: `terminated` at success and at failure, not at a time limit."""
        shaping = self._shaping
        return shaped_reward(
            reward, step.potential, step.next_potential, terminated, shaping.gamma, scale=shaping.progress_scale
        )

    def end(self) -> None:
        """Have the service forget all of them."""
        handles = [handle for handle in self._handles if handle is not None]
        if handles:
            self._client.end([handle.env_id for handle in handles], [handle.episode_id for handle in handles])
        self._handles = [None] * len(self._handles)
