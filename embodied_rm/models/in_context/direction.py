"""Whether a video comes forward, as recurrent nets learned it from other robots: they know nothing of the task.

How far they can be relied on is measured on the demonstration, whose order is known. Shapes: N videos, S keyframes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from embodied_rm.metrics import voc
from embodied_rm.models.zero_shot.progress_gru import GRID, grid_cells
from embodied_rm.models.zero_shot.tracked_views import TrackedViews, advance_views, track_video
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet

MIN_STD = 0.05  # smallest standard deviation of the progress of an alignment, for its weight against that of the nets
S = TypeVar("S", bound=TrackedViews)


class DirectionSkill(NamedTuple):
    """How well the nets order one demonstration."""

    trust: float  # in [0, 1]; 0 where they order it by chance or worse
    variance: float  # mean squared error of their progress, in (0, 1]


NO_SKILL = DirectionSkill(0.0, 1.0)


def mean_skill(skills: Sequence[DirectionSkill]) -> DirectionSkill:
    """Mean over demonstrations."""
    trusts, variances = zip(*skills, strict=True)
    return DirectionSkill(sum(trusts) / len(skills), sum(variances) / len(skills))


def measure_skill(net: ZeroShotNet, views: Sequence[Sequence[Tensor]], progress: Tensor) -> DirectionSkill:
    """Measure how well the nets order a demonstration, forward and backward.

    Args:
        net: The nets.
        views: Per view, the cells of all frames, float [T, h * h, C] per level.
        progress: Of the frames, float [T] in [0, 1].

    Returns:
        The trust is 0 up to an order of 0.5, the mean of VOC and of the negative VOC of the reversed video.
    """
    cells = torch.stack([grid_cells(list(levels), GRID) for levels in views], dim=1)
    curve, backward = net_curve(net, cells), net_curve(net, cells.flip(0))
    order = (voc(curve.numpy()) - voc(backward.numpy())) / 2
    if math.isnan(order):
        return NO_SKILL
    variance = float((curve - progress).square().mean().clamp(1e-6, 1))
    return DirectionSkill(max(0.0, 2 * order - 1), variance)


@torch.inference_mode()
def net_curve(net: ZeroShotNet, cells: Tensor) -> Tensor:
    """Progress float [T] that the nets predict for a video, from cells float [T, V, cells, C] of its views."""
    return torch.cat([net_progress(state) for state in track_video(net, cells, no_sentence(net, 1))])


def no_sentence(net: ZeroShotNet, count: int) -> Tensor:
    """Sentence vectors [count, D] of videos without a sentence."""
    return torch.zeros(count, net.config.gru.text_width)


@torch.inference_mode()
def advance_direction(net: ZeroShotNet, state: S, cells: Tensor, row: Tensor, view: Tensor) -> S:
    """Advance the nets by one frame, without a sentence: see `advance_views`."""
    return advance_views(net, state, cells, row, view, no_sentence(net, len(row)))


def net_progress(state: TrackedViews) -> Tensor:
    """Progress float [N] by the nets, of the views seen so far."""
    return torch.sigmoid(state.mean_of_seen(state.logit))


class Transitions(NamedTuple):
    """Transition probabilities [S, S] between keyframes, of changes of three kinds."""

    steady: Tensor  # the direction is unknown
    forward: Tensor
    backward: Tensor

    def predict(self, belief: Tensor, direction: Tensor) -> Tensor:
        """Predict the belief [N, S] after a change.

        Args:
            belief: Probabilities [N, S].
            direction: How surely each change was forward (1) or backward (-1), [N].
        """
        if not direction.any():
            return belief @ self.steady
        certainty = direction.abs()[:, None]
        directed = torch.where(direction[:, None] > 0, belief @ self.forward, belief @ self.backward)
        return (1 - certainty) * (belief @ self.steady) + certainty * directed


def blend_progress(aligned: Tensor, variance: Tensor, predicted: Tensor, skill: DirectionSkill) -> Tensor:
    """Weigh the progress of the alignment and that of the nets by their variances, float [N].

    Args:
        aligned: Progress of the alignment, [N].
        variance: Its variance, [N].
        predicted: Progress by the nets, [N].
        skill: Of the nets; they count by the square of the trust.
    """
    own = variance + MIN_STD**2
    weight = skill.trust**2 * own / (own + skill.variance)
    return (1 - weight) * aligned + weight * predicted
