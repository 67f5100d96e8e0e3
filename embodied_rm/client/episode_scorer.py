"""Rewards of N environments whose frames a reward service scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

import numpy as np
import numpy.typing as npt

from . import episode_handles
from .episode_handles import EpisodeHandle
from .episode_reward import BoolArray, EpisodeReward, EpisodeStep, FloatArray, RowIndices
from .wire import Frames, RewardPrediction

if TYPE_CHECKING:
    from .reward_client import RewardClient

ENV_SUCCESS, MODEL_SUCCESS = "environment", "model"
"""Sources of success."""


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
    success_threshold: Optional[float] = None
    """Probability of success from which a prediction counts as success; None: as fitted for the model, else 0.5."""
    success_patience: int = 5
    """Consecutive predictions of success that are a success of the episode."""
    success_reward: float = 1.0
    """Reward of a success according to the model."""

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1], got {self.gamma}")
        if self.score_every < 1 or self.success_patience < 1:
            got = f"{self.score_every} and {self.success_patience}"
            raise ValueError(f"score_every and success_patience must be >= 1, got {got}")
        if self.success_threshold is not None and not 0 < self.success_threshold <= 1:
            raise ValueError(f"success_threshold must be in (0, 1], got {self.success_threshold}")
        if self.progress_scale < 0 or self.uncertainty_penalty < 0:
            got = f"{self.progress_scale} and {self.uncertainty_penalty}"
            raise ValueError(f"progress_scale and uncertainty_penalty must be >= 0, got {got}")


class EpisodeScorer:
    """The running episodes of N environments. Call `reset` for rows that were reset, and `step` after every step."""

    def __init__(self, client: RewardClient, num_envs: int, shaping: ShapingConfig, success_source: str) -> None:
        """Ask the service whether its model predicts success and its episodes can be restored.

        Raises `ValueError` for an unknown source of success, or one that the model does not predict.
        """
        if success_source not in (ENV_SUCCESS, MODEL_SUCCESS):
            raise ValueError(f"success_source must be {ENV_SUCCESS} or {MODEL_SUCCESS}, got {success_source!r}")
        parameters = client.get_metadata()["parameters"]
        self._uses_model, self._success_reward = success_source == MODEL_SUCCESS, shaping.success_reward
        if self._uses_model and not parameters["predicts_success"]:
            needs = f"success_source={MODEL_SUCCESS} needs a model that predicts success"
            raise ValueError(f"{needs}, and this one does not predict it")
        self.num_invalid_frames = 0
        """Frames that could not be scored; they keep the potential before them."""
        self._client = client
        self._keep_state = bool(parameters["supports_restore"])
        self._handles: list[Optional[EpisodeHandle]] = [None] * num_envs
        self._num_episodes = np.zeros(num_envs, np.int64)
        # A service of an earlier version names no threshold: its models have none.
        fitted_threshold = parameters.get("success_threshold")
        self._episodes = EpisodeReward(num_envs, shaping, shaping.gamma, fitted_threshold=fitted_threshold)

    @property
    def potential(self) -> FloatArray:
        """Return the potentials [N] of the current states."""
        return self._episodes.state_dict()["potential"]

    def reset(self, rows: RowIndices, instructions: Sequence[str], frames: Frames) -> None:
        """Open new episodes in these rows at their first frames, with the potential that the model has there."""
        episode_ids = self._num_episodes[rows].tolist()
        prediction, handles = episode_handles.reset_episodes(
            self._client, rows.tolist(), episode_ids, instructions, frames, keep_state=self._keep_state
        )
        self._num_episodes[rows] += 1
        self._set_handles(rows, handles)
        self._episodes.reset(rows, prediction.progress)

    def step(
        self,
        get_frames: Callable[[RowIndices], Frames],
        env_reward: npt.ArrayLike,
        terminated: BoolArray,
        truncated: BoolArray,
        valid_transition: BoolArray,
    ) -> EpisodeStep:
        """Score one step, and return rewards and successes of all rows.

        `get_frames` returns the frames of the true next states of rows. The other arrays are [N]; a row without a valid
        transition was reset in this step, and is not scored.
        """
        ended = (terminated | truncated) & valid_transition
        rows = self._episodes.rows_to_score(ended, valid_transition)
        prediction = self._score(rows, get_frames(rows)) if len(rows) else None
        return self._episodes.step(
            rows,
            prediction,
            task_reward=self._success_reward if self._uses_model else np.asarray(env_reward, np.float64),
            terminated=terminated,
            truncated=truncated,
            # The environment's own reward and ends contain its successes.
            task_success=None if self._uses_model else np.zeros(len(terminated), bool),
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
