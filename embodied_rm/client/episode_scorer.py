"""Rewards of N environments whose frames a reward service scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

import numpy as np
import numpy.typing as npt

from . import episode_handles
from .episode_handles import EpisodeHandle
from .episode_reward import EpisodeReward, EpisodeStep
from .prediction import Frames, RewardPrediction

if TYPE_CHECKING:
    from .reward_client import RewardClient

RowIndices = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ShapingConfig:
    """Conversion of predictions to rewards, as in `embodied-rm refine`.

    Raises:
        ValueError: A setting is out of range.
    """

    gamma: float
    """Discount of the learner, in (0, 1]. Another one would change the optimal policy."""
    progress_scale: float = 1.0
    """Weight of the progress: the reward for the whole task, from potential 0 to 1."""
    score_every: int = 1
    """Steps between two scores; the end of an episode is always scored."""
    uncertainty_penalty: float = 0.0
    """Multiple of the prediction's uncertainty that is subtracted from its progress."""
    success_threshold: float = 0.5
    """Probability of success from which a prediction counts as success."""
    success_patience: int = 5
    """Consecutive predictions of success that are a success of the episode."""

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
                "progress_scale and uncertainty_penalty must be >= 0, "
                f"got {self.progress_scale} and {self.uncertainty_penalty}"
            )


class EpisodeScorer:
    """The running episodes of N environments.

    Call `reset` for the rows that were reset, and `rows_to_score` and `step` after every step.
    """

    def __init__(self, client: RewardClient, num_envs: int, shaping: ShapingConfig) -> None:
        """Read from the service whether its model predicts success and its episodes can be restored."""
        parameters = client.get_metadata()["parameters"]
        self.predicts_success: bool = parameters["predicts_success"]
        self.num_invalid_frames = 0
        """Frames that could not be scored; they keep the potential before them."""
        self._client = client
        self._keep_state = bool(parameters["supports_restore"])
        self._handles: list[Optional[EpisodeHandle]] = [None] * num_envs
        self._num_episodes = np.zeros(num_envs, np.int64)
        self._episodes = EpisodeReward(num_envs, shaping, shaping.gamma)

    def reset(self, rows: RowIndices, instructions: Sequence[str], frames: Frames) -> None:
        """Open new episodes in these rows at their first frames, with potential 0."""
        episode_ids = self._num_episodes[rows].tolist()
        _, handles = episode_handles.reset_episodes(
            self._client, rows.tolist(), episode_ids, instructions, frames, keep_state=self._keep_state
        )
        self._num_episodes[rows] += 1
        self._set_handles(rows, handles)
        self._episodes.reset(rows, np.zeros(len(rows), np.float32))

    def rows_to_score(self, ended: BoolArray, valid_transition: BoolArray) -> RowIndices:
        """Count a step, and return the rows, of those with a valid transition, whose frames must be scored now."""
        return self._episodes.rows_to_score(ended, valid_transition)

    def step(
        self,
        rows: RowIndices,
        frames: Frames,
        *,
        task_reward: npt.ArrayLike,
        terminated: BoolArray,
        truncated: BoolArray,
        task_success: Optional[BoolArray],
    ) -> EpisodeStep:
        """Score the frames of these rows, and return rewards and successes of all rows.

        Args:
            rows: int [n], rows of `rows_to_score`.
            frames: Their frames, of the true next states.
            task_reward: As in `EpisodeReward.step`, like the arguments that follow.
            terminated: bool [N].
            truncated: bool [N].
            task_success: bool [N]; None: the successes of the model end episodes and earn `task_reward`.
        """
        prediction = self._score(rows, frames) if len(rows) else None
        return self._episodes.step(
            rows,
            prediction,
            task_reward=task_reward,
            terminated=terminated,
            truncated=truncated,
            task_success=task_success,
        )

    def end(self) -> None:
        """Delete all episodes from the service."""
        handles = [handle for handle in self._handles if handle is not None]
        if handles:
            self._client.end([handle.env_id for handle in handles], [handle.episode_id for handle in handles])
        self._handles = [None] * len(self._handles)

    def _score(self, rows: RowIndices, frames: Frames) -> RewardPrediction:
        handles = [self._handles[row] for row in rows.tolist()]
        if any(handle is None for handle in handles):
            raise ValueError("an environment was stepped that was never reset")
        prediction, next_handles = episode_handles.step_episodes(self._client, handles, frames)
        self._set_handles(rows, next_handles)
        self.num_invalid_frames += int((~prediction.valid).sum())
        return prediction

    def _set_handles(self, rows: RowIndices, handles: Sequence[EpisodeHandle]) -> None:
        for row, handle in zip(rows.tolist(), handles):
            self._handles[row] = handle
