"""The visible images of several frames, how far they are from the keyframes, and how much they have changed."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from embodied_rm.models.in_context.appearance import Appearance


class VisibleFrames(NamedTuple):
    """The visible images of N frames: rows of a batch of images, and where each belongs."""

    appearance: Appearance  # of P images
    grid: Tensor | None  # their cells for the direction nets, float [P, cells, C]; None without such nets
    row: Tensor  # int64 [P]: the frame of each image
    view: Tensor  # int64 [P]: its view

    def at(self, t: int) -> VisibleFrames:
        """Return the images of frame t, as those of the only frame."""
        chosen = self.row == t
        grid = None if self.grid is None else self.grid[chosen]
        return VisibleFrames(self.appearance.select(chosen), grid, self.row[chosen] * 0, self.view[chosen])


class Movement(NamedTuple):
    """What has happened in N frames, bool [N] each."""

    first: Tensor  # the first visible frame of its video
    moved: Tensor  # the first one, or one that has changed enough since the belief last moved


class FrameDistances(NamedTuple):
    """Distances [3, N, S] of frames to keyframes: of the frame, the scene and the changed cells."""

    total: Tensor  # summed over the visible views
    mean: Tensor  # averaged over them

    def at(self, t: int) -> FrameDistances:
        """Return the distances of frame t, as those of the only frame."""
        return FrameDistances(self.total[:, t : t + 1], self.mean[:, t : t + 1])


def change_of_views(before: Tensor, after: Tensor, visible: Tensor) -> Tensor:
    """Mean change of the visible views, float [N], between cells [N, V, cells, C]."""
    change = change_of_cells(before, after) * visible
    return change.sum(dim=1) / visible.sum(dim=1).clamp_min(1)


def change_of_cells(before: Tensor, after: Tensor) -> Tensor:
    """Mean squared change of the cells of each view, float [N, V], between cells [N, V, cells, C]."""
    return (after - before).square().sum(dim=3).mean(dim=2)
