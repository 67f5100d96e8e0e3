"""`ZeroShotModel`: progress of a video of a real robot, from its frames and the instruction alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.in_context.frozen_encoder import CachingEncoder, FrozenEncoder
from embodied_rm.models.reward_model import (
    UNKNOWN_SUBTASK,
    Capabilities,
    Demonstration,
    InputSpec,
    RewardState,
    check_reset_by_video,
    check_step,
)
from embodied_rm.models.scoring import concat_outputs
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.models.zero_shot import progress_gru, sentence_match
from embodied_rm.models.zero_shot.progress_filter import FilterState, success_features
from embodied_rm.models.zero_shot.progress_gru import grid_cells
from embodied_rm.models.zero_shot.sentence_encoder import SentenceEncoder, SentenceTokens
from embodied_rm.models.zero_shot.tracked_views import advance_views, blank_views
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.models.zero_shot.zero_shot_state import ZeroShotState
from embodied_rm.types import BoolArray, RewardOutput, Views

FADE_WIDTH = 0.25  # of the out-of-distribution score, above its limit of 1: success fades to 0 there


class EncodedFrames(NamedTuple):
    """The visible images of N frames: P images, and where each belongs."""

    cells: Tensor  # float [P, 16, C]
    match_cells: Tensor | None  # float [P, 49, C]; None where every view has been seen before
    row: Tensor  # int64 [P]
    view: Tensor  # int64 [P]

    def at(self, t: int) -> EncodedFrames:
        """Return the images of frame t, as those of the only frame."""
        chosen = self.row == t
        match_cells = None if self.match_cells is None else self.match_cells[chosen]
        return EncodedFrames(self.cells[chosen], match_cells, self.row[chosen] * 0, self.view[chosen])


class ZeroShotModel:
    """A `RewardModel` for any number of views with any names; the views are averaged.

    A video may have any size, rate and length, and starts anywhere. Goal images and demonstrations are not used.
    """

    capabilities = Capabilities(serializable_state=True)

    def __init__(self, net: ZeroShotNet, encoder: FrozenEncoder, text: SentenceEncoder) -> None:
        """
        Args:
            net: The trained part.
            encoder: The image encoder that it was trained on.
            text: The sentence encoder that it was trained on.
        """
        self.net, self.encoder, self.text = net.eval(), encoder, text

    def with_cache(self) -> ZeroShotModel:
        """Return a model of the same nets that encodes each image once."""
        return ZeroShotModel(self.net, CachingEncoder(self.encoder), self.text)

    @property
    def input_spec(self) -> InputSpec:
        """Any views, at the encoder's size."""
        return InputSpec(image_size=self.encoder.image_size)

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> ZeroShotState:
        """Start N videos at their first frames; the state holds the prediction for them, see `first_output`."""
        check_reset_by_video(len(views), instructions, goal, reference)
        return self.step(self._empty_state(len(views.names), instructions), views)[1]

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames, from the state that `reset` returned."""
        assert isinstance(state, ZeroShotState)
        return to_output(state)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, ZeroShotState]:
        """Score one new frame per row. A row without a visible view is invalid and carries its last prediction."""
        assert isinstance(state, ZeroShotState)
        check_step(len(state), len(views))
        self._check_views(state, views)
        visible = visible_views(views)
        state = self._advance(state, self._encode(state, views, visible), visible)
        return to_output(state), state

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, ZeroShotState]:
        """Score consecutive frames of one video, one row per frame; `state` has one row.

        The images of all frames are encoded at once, which is faster than frame by frame.
        """
        assert isinstance(state, ZeroShotState) and len(state) == 1
        self._check_views(state, views)
        visible = visible_views(views)
        frames = self._encode(state, views, visible)
        outputs = []
        for t in range(len(views)):
            state = self._advance(state, frames.at(t), visible[t : t + 1])
            outputs.append(to_output(state))
        return concat_outputs(outputs), state

    def _check_views(self, state: ZeroShotState, views: Views) -> None:
        if len(views.names) != state.seen.shape[1]:
            raise UserError(f"the video started with {state.seen.shape[1]} views, and goes on with {len(views.names)}")

    def _empty_state(self, num_views: int, instructions: Sequence[str]) -> ZeroShotState:
        sentences, per_row = self.text.encode(instructions), torch.zeros(len(instructions))
        return ZeroShotState(
            tokens=sentences.vectors,
            token_mask=sentences.mask,
            match=torch.zeros(len(instructions), num_views),
            valid=per_row.bool(),
            progress=per_row,
            uncertainty=per_row,
            success=per_row,
            ood=per_row,
            **blank_views(self.net, len(instructions), num_views),
        )

    def _encode(self, state: ZeroShotState, views: Views, visible: BoolArray) -> EncodedFrames:
        rows, columns = np.nonzero(visible)
        images = np.asarray(views.frames[rows, columns])
        if not len(rows):
            images = np.zeros((1, *self.encoder.image_size, 3), np.uint8)  # encoded for its shape only
        levels = [level[: len(rows)] for level in self.encoder.encode(images)]
        return EncodedFrames(
            cells=grid_cells(levels, progress_gru.GRID),
            match_cells=None if state.seen.all() else grid_cells(levels, sentence_match.GRID),
            row=torch.from_numpy(rows),
            view=torch.from_numpy(columns),
        )

    @torch.inference_mode()
    def _advance(self, state: ZeroShotState, frames: EncodedFrames, visible: BoolArray) -> ZeroShotState:
        """Advance the rows by one frame, and predict."""
        row, view = frames.row, frames.view
        sentence = SentenceTokens(state.tokens[row], state.token_mask[row]).mean()
        state = self._match_views(state, frames, ~state.seen[row, view])
        state = advance_views(self.net, state, frames.cells, row, view, sentence)
        seen, valid = state.seen | torch.from_numpy(visible), torch.from_numpy(visible.any(axis=1))
        total = torch.zeros(len(state)).index_add(0, row, self.net.ood(frames.cells))
        ood = torch.where(valid, total / row.bincount(minlength=len(state)), state.ood)
        return self._predict(replace(state, seen=seen, valid=valid, ood=ood))

    def _match_views(self, state: ZeroShotState, frames: EncodedFrames, fresh: Tensor) -> ZeroShotState:
        """Match the sentence with the images of views that are seen for the first time."""
        if not fresh.any():
            return state
        assert frames.match_cells is not None
        row, view = frames.row[fresh], frames.view[fresh]
        match = self.net.match(state.tokens[row], state.token_mask[row], frames.match_cells[fresh])
        return replace(state, match=state.match.index_put((row, view), match))

    def _predict(self, state: ZeroShotState) -> ZeroShotState:
        """Predict the rows that have a visible view, from the average of the views seen so far."""
        config = self.net.config
        logit, climb, disagreement = map(state.mean_of_seen, (state.logit, state.climb, state.disagreement))
        match = state.match.masked_fill(~state.seen, -torch.inf).amax(dim=1).clamp_min(-1e6)
        relevance = torch.sigmoid(config.relevance.logit(match))
        potential = torch.sigmoid(logit)
        success = torch.sigmoid(config.success.logit(*success_features(FilterState(logit, climb))))
        kept = 1 - config.relevance_weight * (1 - relevance)
        success = success * kept * familiarity(state.ood)
        return state.update_rows(state.valid, progress=potential * kept, uncertainty=disagreement, success=success)


def familiarity(ood: Tensor) -> Tensor:
    """Factor of success: 1 for images that the nets know, and 0 from a quarter above their limit on."""
    return ((1 + FADE_WIDTH - ood) / FADE_WIDTH).clamp(0, 1)


def to_output(state: ZeroShotState) -> RewardOutput:
    """Return the prediction that a state holds; invalid rows carry the last one."""
    return RewardOutput(
        progress=state.progress.numpy().copy(),
        valid=state.valid.numpy().copy(),
        subtask=np.full(len(state), UNKNOWN_SUBTASK, np.int64),
        success=state.success.numpy().copy(),
        uncertainty=state.uncertainty.numpy().copy(),
        ood=np.where(state.valid.numpy(), state.ood.numpy(), np.float32(np.nan)),
    )
