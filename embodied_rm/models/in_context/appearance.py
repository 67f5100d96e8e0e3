"""How two frames are compared: as they are, without what moves, and where the demonstration changed the scene.

Shapes: M frames, L levels, cells of unit vectors [M, cells, C] per level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from embodied_rm.models.in_context.frozen_encoder import COARSE_GRID

CHANGE_EXPONENT = 4.0
"""Exponent of the share of a cell's path that is net change. A cell that an arm crosses ends as it began, and weighs
nothing; a cell where an object was moved changes once."""
END_FRACTION = 1 / 12  # part of a demonstration, at its start and at its end, that shows the scene before and after
MIN_END_FRAMES = 2


@dataclass(frozen=True)
class Appearance:
    """Frames of one view, as vectors whose squared distance is a mean over cells and levels."""

    coarse: Tensor  # cells pooled to 4 x 4, float [M, cells, channels of all levels]
    fine: tuple[Tensor, ...]  # unit vectors of all cells, per level

    def __len__(self) -> int:
        return len(self.coarse)

    def select(self, index: Tensor | slice) -> Appearance:
        """Return some of the frames."""
        return Appearance(self.coarse[index], tuple(level[index] for level in self.fine))


def make_appearance(levels: Sequence[Tensor]) -> Appearance:
    """Make the appearance of frames from the cells of their levels, from the finest to the coarsest level.

    Args:
        levels: float [M, h * w, C] per level, unit vectors in rows of square maps.

    Returns:
        Appearance of M frames. The finest level is left out of the coarse part: pooled, it shows texture only.
    """
    coarse = torch.cat([pool_cells(level) for level in levels[1:]], dim=2)
    return Appearance(coarse / (len(levels) - 1) ** 0.5, tuple(levels))


def pool_cells(level: Tensor) -> Tensor:
    """Average cells [M, s * s, C] over a grid of 4 x 4, as unit vectors [M, 16, C]."""
    return nn.functional.normalize(average_cells(level, COARSE_GRID), dim=2)


def average_cells(level: Tensor, side: int) -> Tensor:
    """Average cells [M, h * h, C] over a grid of side x side, [M, side * side, C]."""
    height = round(level.shape[1] ** 0.5)
    maps = level.transpose(1, 2).unflatten(2, (height, height))
    return nn.functional.adaptive_avg_pool2d(maps, side).flatten(2).transpose(1, 2)


def squared_distances(frames: Tensor, keyframes: Tensor) -> Tensor:
    """Mean over cells of the squared distance, float [M, R], of frames [M, cells, C] and keyframes [R, cells, C]."""
    cells = frames.shape[1]
    return torch.cdist(frames.flatten(1), keyframes.flatten(1)).square() / cells


def cell_motion(frames: Tensor) -> Tensor:
    """Mean squared change of a cell from one frame [cells, C] of a video to the next, float []."""
    return (frames[1:] - frames[:-1]).square().sum(dim=2).mean() if len(frames) > 1 else frames.new_tensor(1.0)


def advance_still_scene(memory: Tensor, previous: Tensor, current: Tensor, motion: Tensor | float) -> Tensor:
    """Update the memory of the scene without what moves, [M, cells, C].

    A cell takes its new look as far as it is still, exp(-change / motion). One that an arm crosses keeps the old look.

    Args:
        memory: The memory before this frame.
        previous: Cells of the frame before.
        current: Cells of this frame.
        motion: Squared change at which a cell is hardly still any more, > 0.
    """
    change = (current - previous).square().sum(dim=2, keepdim=True)
    return memory + torch.exp(-change / motion) * (current - memory)


def still_scene(frames: Tensor, motion: Tensor | float) -> Tensor:
    """Scene without what moves at each frame of a video [T, cells, C], the mean of its memories in both directions.

    The mean has no direction: a memory of the past alone would match videos that run forward better.
    """
    return (_memories(frames, motion) + _memories(frames.flip(0), motion).flip(0)) / 2


def _memories(frames: Tensor, motion: Tensor | float) -> Tensor:
    memories = [frames[:1]]
    for t in range(1, len(frames)):
        memories.append(advance_still_scene(memories[-1], frames[t - 1 : t], frames[t : t + 1], motion))
    return torch.cat(memories)


def num_end_frames(num_keyframes: int) -> int:
    """Number of keyframes that show the scene before the task, and of those that show it after."""
    return min(num_keyframes, max(MIN_END_FRAMES, int(num_keyframes * END_FRACTION)))


def changed_cell_weights(level: Tensor) -> Tensor:
    """Weight of each cell, float [cells] of sum 1, by how lastingly a demonstration [R, cells, C] changes it.

    A weight is (net change / length of the path) to the power of `CHANGE_EXPONENT`, and 0 for the half of the cells
    that change least.
    """
    ends = num_end_frames(len(level))
    path = (level[1:] - level[:-1]).norm(dim=2).sum(dim=0)
    net_change = (level[-ends:].mean(dim=0) - level[:ends].mean(dim=0)).norm(dim=1)
    share = (net_change / path.clamp_min(1e-6)) ** CHANGE_EXPONENT
    weights = torch.where(net_change > net_change.median(), share, 0)
    total = weights.sum()
    return weights / total if total > 0 else torch.full_like(weights, 1 / len(weights))


def weigh_cells(fine: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Vectors [M, D] whose squared distance is that of the cells under their weights, averaged over the levels.

    Cells of weight 0 are left out.
    """
    parts = []
    for level, weight in zip(fine, weights, strict=True):
        kept = weight > 0
        parts.append((level[:, kept] * weight[kept].sqrt()[:, None]).flatten(1))
    return torch.cat(parts, dim=1) / len(fine) ** 0.5
