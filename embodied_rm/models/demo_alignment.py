"""In-context one-shot learning: a demonstration as a way along which the present is found (pure torch).

The present is one of the demonstration's moments, and moves along them as time goes on: a hidden Markov model whose
observations are distances of states. Its forward filter looks at the past only. Shapes: N environments, R moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.labels.hops import true_progress
from embodied_rm.models.reward_model import Demonstration
from embodied_rm.types import Episode, Views

NUM_KEYFRAMES = 32
"""Moments of a demonstration that are kept, evenly over its time."""
UNIFORM_JUMP_PROB = 0.1
"""Probability of being anywhere on the way, wherever one was before."""
COVERAGE_FLOOR = 0.01
"""What a moment that was left out counts among those that were passed, in their geometric mean."""
END_DISTANCE_TOLERANCE = 2.0
"""How much farther from the end of the demonstration than from other moments the end of an episode may be."""
EMISSION_TEMPERATURE = 1.0
"""Distance of states, in squared steps of the demonstration, at which a moment is e times less likely."""


def stack_demonstrations(demonstrations: list[Episode]) -> Demonstration:
    """One demonstration an environment, all with the same views, as `begin` takes them.

    Raises `DataError` when one has neither annotated steps nor progress.
    """
    keyframes = [np.linspace(0, len(e) - 1, NUM_KEYFRAMES).round().astype(np.int64) for e in demonstrations]
    names = tuple(demonstrations[0].views)
    frames = [
        np.stack([e.views[name][index] for name in names], axis=1)
        for e, index in zip(demonstrations, keyframes, strict=True)
    ]
    return Demonstration(
        views=Views(names=names, frames=np.concatenate(frames)),
        instructions=tuple(e.instruction for e in demonstrations),
        progress=np.stack([true_progress(e)[index] for e, index in zip(demonstrations, keyframes, strict=True)]),
    )


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Where on the demonstration's way the present is."""

    belief: Tensor
    """Probability of each moment, float [N, R]."""
    max_belief: Tensor
    """The most that was ever believed of each moment and its two neighbors, float [N, R]."""
    potential: Tensor
    """Expected progress, float [N]."""
    success_score: Tensor
    """How much, in [0, 1], speaks for the task being done, float [N]: that the end was reached, that it looks as it
    did, that every moment was passed on the way; their geometric mean."""


def forward_filter_step(
    belief: Tensor, max_belief: Tensor, keyframes: Tensor, progress: Tensor, embedding: Tensor
) -> Alignment:
    """One step of the forward filter, from what was believed to that after `state` [N, width] has been seen.

    `moments`: states of the demonstration [N, R, width], whose `progress` is [N, R].
    """
    predicted = belief @ transition_matrix(belief.shape[1]).to(belief)
    distances = (
        mean_squared_distance(keyframes, embedding[:, None])
        / (EMISSION_TEMPERATURE * median_step_distance(keyframes))[:, None]
    )
    belief = torch.softmax(predicted.log() - distances, dim=1)
    max_belief = torch.maximum(max_belief, sum_neighbors(belief))
    potential = (belief * progress).sum(dim=1)
    coverage = (max_belief + COVERAGE_FLOOR).log().mean(dim=1).exp().clamp(max=1)
    success_score = (potential * torch.exp(-distances[:, -1] / END_DISTANCE_TOLERANCE) * coverage) ** (1 / 3)
    return Alignment(belief=belief, max_belief=max_belief, potential=potential, success_score=success_score)


def sum_neighbors(belief: Tensor) -> Tensor:
    """Probability [N, R] of each moment and its two neighbors."""
    return nn.functional.pad(belief, (1, 1)).unfold(1, 3, 1).sum(dim=2)


def transition_matrix(num_keyframes: int) -> Tensor:
    """Probability [R, R] of each moment after each, the farther the less likely.

    Forwards and backwards alike: with a liking for forwards the curve rises by itself, and order is no merit then.
    """
    index = torch.arange(num_keyframes)
    kernel = torch.exp(-(index[None] - index[:, None]).abs().float())
    return (1 - UNIFORM_JUMP_PROB) * kernel / kernel.sum(dim=1, keepdim=True) + UNIFORM_JUMP_PROB / num_keyframes


def mean_squared_distance(p: Tensor, q: Tensor) -> Tensor:
    """Mean squared difference of states [..., width]; they broadcast."""
    return (p - q).square().mean(dim=-1)


def median_step_distance(keyframes: Tensor) -> Tensor:
    """The typical step of each demonstration, [N]: median distance of moments that follow each other and differ."""
    distances = mean_squared_distance(keyframes[:, 1:], keyframes[:, :-1])
    median = torch.where(distances > 0, distances, torch.nan).nanmedian(dim=1).values
    return torch.nan_to_num(median, nan=1.0)
