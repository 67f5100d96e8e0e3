"""From the logits of progress and direction to one curve. Pure functions; N videos."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DIRECTION_GAIN = 0.3  # change of the potential's logit per frame that is surely forward
PROGRESS_GAIN = 0.03
"""Fraction of the way to the progress that the net predicts, per frame. Small: the direction transfers to new scenes,
the progress does so less."""


class FilterState(NamedTuple):
    """The curve so far, float [N] each."""

    logit: Tensor  # of the potential
    climb: Tensor
    """Sum of the directions since the video was last at its lowest, >= 0: frames that it has come forward."""


def start_filter(progress_logit: Tensor) -> FilterState:
    """Start at the predicted progress of the first frames."""
    return FilterState(progress_logit, torch.zeros_like(progress_logit))


def advance_filter(state: FilterState, progress_logit: Tensor, direction: Tensor) -> FilterState:
    """Advance by one frame: a complementary filter of an absolute and an incremental measurement.

    Args:
        state: The curve so far.
        progress_logit: Predicted progress of the frame, as a logit.
        direction: How surely the last change was forward (1) or backward (-1).
    """
    logit = state.logit + DIRECTION_GAIN * direction + PROGRESS_GAIN * (progress_logit - state.logit)
    return FilterState(logit, (state.climb + direction).clamp_min(0))


class Readout(NamedTuple):
    """Coefficients of a logistic regression, fitted on the validation labs."""

    bias: float
    slopes: tuple[float, ...]  # per feature

    def logit(self, *features: Tensor) -> Tensor:
        """Logit of the probability, [N]."""
        total = torch.full_like(features[0], self.bias)
        for slope, feature in zip(self.slopes, features, strict=True):
            total = total + slope * feature
        return total


def success_features(state: FilterState) -> tuple[Tensor, Tensor]:
    """Features of success: the potential, and how far the video has come forward to it.

    A video that starts at the end of the task, or stands still, has come nowhere.
    """
    return state.logit, torch.log1p(state.climb)
