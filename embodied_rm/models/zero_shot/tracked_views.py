"""`TrackedViews`: what the recurrent nets carry per view from frame to frame, and their advance by one frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from embodied_rm.models.tensor_state import TensorState
from embodied_rm.models.zero_shot.progress_filter import FilterState, advance_filter, start_filter
from embodied_rm.models.zero_shot.progress_gru import GRID, FrameCells
from embodied_rm.models.zero_shot.revisits import (
    PastFrames,
    blend_revisit,
    find_revisit,
    no_past,
    remember,
    revisit_direction,
)
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet


@dataclass(frozen=True, kw_only=True)
class TrackedViews(TensorState):
    """V views of N videos. Entries of a view that was never visible are meaningless."""

    first_cells: Tensor  # cells of the first frame, float [N, V, cells, C]
    last_cells: Tensor  # cells of the last frame that was new, float [N, V, cells, C]
    hidden: Tensor  # recurrent state, float [N, V, D]
    logit: Tensor  # of the potential, float [N, V]
    climb: Tensor  # see `FilterState`, float [N, V]
    forward: Tensor  # sum of the directions of all changes, float [N, V]: how far the video has come forward
    disagreement: Tensor  # of the members about the progress, float [N, V]
    past_images: Tensor  # see `PastFrames`, float [N, V, K, D]
    past_logits: Tensor  # float [N, V, K]
    past_climbs: Tensor  # float [N, V, K]
    past_num_frames: Tensor  # int64 [N, V]
    past_path: Tensor  # float [N, V]
    seen: Tensor  # bool [N, V]: whether the view has been visible

    def mean_of_seen(self, values: Tensor) -> Tensor:
        """Mean of values [N, V] over the views seen so far, float [N]."""
        return (values * self.seen).sum(dim=1) / self.seen.sum(dim=1).clamp_min(1)


S = TypeVar("S", bound=TrackedViews)


def blank_views(net: ZeroShotNet | None, num_rows: int, num_views: int) -> dict[str, Tensor]:
    """Return the fields of `TrackedViews` before the first frame; without a net, cells and states have no entries."""
    channels, width = (0, 0) if net is None else (net.config.gru.channels, net.state_width)
    past = no_past((num_rows, num_views), 0, 0) if net is None else no_past((num_rows, num_views), net.image_width)
    cells, per_view = torch.zeros(num_rows, num_views, GRID**2, channels), torch.zeros(num_rows, num_views)
    return {
        "first_cells": cells,
        "last_cells": cells,
        "hidden": torch.zeros(num_rows, num_views, width),
        **dict.fromkeys(("logit", "climb", "forward", "disagreement"), per_view),
        **past_fields(past),
        "seen": per_view.bool(),
    }


def past_fields(past: PastFrames) -> dict[str, Tensor]:
    """Return the fields of `TrackedViews` that hold what the videos remember."""
    return {f"past_{name}": value for name, value in past._asdict().items()}


def advance_views(net: ZeroShotNet, state: S, cells: Tensor, row: Tensor, view: Tensor, sentence: Tensor) -> S:
    """Advance the views whose image is new: those of a first frame, and those that have changed enough.

    Args:
        net: The recurrent nets.
        state: The state after the frame before; `seen` is not changed.
        cells: Cells of P images, float [P, cells, C].
        row: Video of each image, int64 [P].
        view: View of each image, int64 [P].
        sentence: Sentence vector of each image, float [P, D].
    """
    fresh = ~state.seen[row, view]
    first_cells, last_cells = state.first_cells, state.last_cells
    if fresh.any():
        new = row[fresh], view[fresh]
        first_cells, last_cells = (memory.index_put(new, cells[fresh]) for memory in (first_cells, last_cells))
    change = (cells - last_cells[row, view]).square().sum(dim=2).mean(dim=1)
    moved = fresh | (change > net.config.move_threshold)
    if not moved.any():
        return state
    at = row[moved], view[moved]
    frames = FrameCells(cells[moved], last_cells[at], first_cells[at])
    predicted, hidden = net.step(frames, sentence[moved], state.hidden[at])
    before = FilterState(state.logit[at], state.climb[at])
    past = PastFrames(*(getattr(state, f"past_{name}")[at] for name in PastFrames._fields))
    revisit, path = find_revisit(past, predicted.image)
    advanced = blend_revisit(advance_filter(before, predicted.progress_logit, predicted.direction), revisit)
    at_start = start_filter(predicted.progress_logit)
    curve = FilterState(*(torch.where(fresh[moved], a, b) for a, b in zip(at_start, advanced, strict=True)))
    direction = revisit_direction(before, predicted.direction, revisit)
    forward = torch.where(fresh[moved], 0.0, state.forward[at] + direction)
    return replace(
        state,
        first_cells=first_cells,
        last_cells=last_cells.index_put(at, frames.current),
        hidden=state.hidden.index_put(at, hidden),
        logit=state.logit.index_put(at, curve.logit),
        climb=state.climb.index_put(at, curve.climb),
        forward=state.forward.index_put(at, forward),
        disagreement=state.disagreement.index_put(at, predicted.disagreement),
        **{
            name: getattr(state, name).index_put(at, value)
            for name, value in past_fields(remember(past, predicted.image, curve, path)).items()
        },
    )


def track_video(net: ZeroShotNet, cells: Tensor, sentence: Tensor) -> Iterator[TrackedViews]:
    """Yield the state after each frame of one video, cells float [T, V, cells, C], under a sentence vector [1, D]."""
    num_views = cells.shape[1]
    row, view = torch.zeros(num_views, dtype=torch.int64), torch.arange(num_views)
    state = TrackedViews(**blank_views(net, 1, num_views))
    for frame in cells:
        state = advance_views(net, state, frame, row, view, sentence.expand(num_views, -1))
        state = replace(state, seen=torch.ones_like(state.seen))
        yield state
