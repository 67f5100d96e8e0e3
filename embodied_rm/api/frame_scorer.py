"""Score an episode while it happens, one frame after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.api.clip_output import ClipOutput, FrameInput, clip_episode
from embodied_rm.client.shaping import update_success_streak
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import DescribedRewardModel, RewardState, VideoRewardModel, first_outputs
from embodied_rm.models.scoring import check_finite, views_at, with_subgoals
from embodied_rm.types import Episode


class FrameScorer:
    """One episode of `BaseRewardModel.frame_scorer`."""

    def __init__(
        self,
        model: DescribedRewardModel,
        instruction: str,
        resize: Callable[[Episode], Episode],
        success_threshold: float,
        success_patience: int,
    ) -> None:
        """`resize`: selects the views that the model knows, at its image size; the rest is as in `score`."""
        if isinstance(model, VideoRewardModel):
            raise UserError("this model scores complete videos only: use score")
        self._model, self._instruction, self._resize = with_subgoals(model, [instruction]), instruction, resize
        self._known_views = model.input_spec.views
        self._threshold, self._patience = success_threshold, success_patience
        self._state: RewardState | None = None
        self._streak, self._is_done = np.zeros(1, np.int64), False

    def score(self, frames: FrameInput) -> ClipOutput:
        """Score the next frame of the episode.

        Args:
            frames: uint8 [H, W, 3] of the model's first view, or a view name -> such an array. Any height and width.

        Returns:
            The output for this frame, as that of `score` for a clip up to it: arrays [1].

        Raises:
            UserError: For frames or views that do not fit.
        """
        clip = (
            {view: _add_axis(image) for view, image in frames.items()}
            if isinstance(frames, Mapping)
            else _add_axis(frames)
        )
        views = views_at([self._resize(clip_episode(clip, self._instruction, self._known_views))], 0)
        if self._state is None:
            self._state = self._model.reset(views, [self._instruction])
            output = first_outputs(self._model, self._state)
        else:
            output, self._state = self._model.step(self._state, views)
        output = check_finite(output)
        self._streak = update_success_streak(self._streak, output.success >= self._threshold, output.valid)
        self._is_done = self._is_done or bool(self._streak[0] >= self._patience)
        return ClipOutput(**vars(output), done=np.array([self._is_done]))


def _add_axis(image: object) -> np.ndarray:
    return np.asarray(image)[None]
