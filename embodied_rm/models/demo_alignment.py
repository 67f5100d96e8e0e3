"""In-context one-shot learning: alignment of an episode with a demonstration (pure torch).

A hidden Markov model: the hidden state is the current keyframe of the demonstration, the observation is the distance
of embeddings. Its forward filter uses past frames only. Shapes: N environments, R keyframes.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.labels.true_progress import true_progress
from embodied_rm.models.reward_model import Demonstration
from embodied_rm.types import Episode, Views

NUM_KEYFRAMES = 32  # frames of a demonstration that are used, evenly spaced in time
UNIFORM_JUMP_PROB = 0.1  # transition probability that is spread evenly over all keyframes
COVERAGE_FLOOR = 0.01  # coverage of a keyframe that was skipped, in the geometric mean over keyframes
END_DISTANCE_TOLERANCE = 2.0
"""Factor by which the last frame may be farther from the demonstration than other frames are."""
EMISSION_TEMPERATURE = 1.0
"""Distance of embeddings, in squared steps of the demonstration, at which a keyframe is e times less likely."""


def stack_demonstrations(demonstrations: list[Episode]) -> Demonstration:
    """Stack one demonstration with the same views per environment for `RewardModel.reset`.

    `DataError` if one has neither annotated subtasks nor progress.
    """
    pairs = [(e, np.linspace(0, len(e) - 1, NUM_KEYFRAMES).round().astype(np.int64)) for e in demonstrations]
    names = tuple(demonstrations[0].views)
    frames = np.concatenate([np.stack([e.views[name][index] for name in names], axis=1) for e, index in pairs])
    return Demonstration(
        views=Views(names=names, frames=frames),
        instructions=tuple(e.instruction for e in demonstrations),
        progress=np.stack([true_progress(e)[index] for e, index in pairs]),
    )


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """Position of each environment along its demonstration."""

    belief: Tensor  # probability of each keyframe, float [N, R]
    max_belief: Tensor  # largest probability so far of each keyframe and its two neighbors, float [N, R]
    potential: Tensor  # expected progress, float [N]
    success_score: Tensor
    """Score in [0, 1] that the task is done, float [N]: the geometric mean of reaching the end, similarity to the last
    keyframe, and coverage of all keyframes.
    """


def forward_filter_step(
    belief: Tensor, max_belief: Tensor, keyframes: Tensor, progress: Tensor, embedding: Tensor
) -> Alignment:
    """Advance the forward filter by one frame with embeddings [N, width].

    The fields of `Alignment` before the frame are `belief` and `max_belief`. The demonstration has keyframe embeddings
    [N, R, width] and progress [N, R].
    """
    predicted = belief @ transition_matrix(belief.shape[1]).to(belief)
    scale = (EMISSION_TEMPERATURE * median_step_distance(keyframes))[:, None]
    distances = mean_squared_distance(keyframes, embedding[:, None]) / scale
    belief = torch.softmax(predicted.log() - distances, dim=1)
    max_belief = torch.maximum(max_belief, sum_neighbors(belief))
    potential = (belief * progress).sum(dim=1)
    coverage = (max_belief + COVERAGE_FLOOR).log().mean(dim=1).exp().clamp(max=1)
    success_score = (potential * torch.exp(-distances[:, -1] / END_DISTANCE_TOLERANCE) * coverage) ** (1 / 3)
    return Alignment(belief=belief, max_belief=max_belief, potential=potential, success_score=success_score)


def sum_neighbors(belief: Tensor) -> Tensor:
    """Probability [N, R] of each keyframe together with its two neighbors."""
    return nn.functional.pad(belief, (1, 1)).unfold(1, 3, 1).sum(dim=2)


def transition_matrix(num_keyframes: int) -> Tensor:
    """Transition probabilities [R, R], decreasing with the distance of two keyframes.

    The kernel is symmetric: a preference for the forward direction would raise the curve without any observation.
    """
    index = torch.arange(num_keyframes)
    kernel = torch.exp(-(index[None] - index[:, None]).abs().float())
    return (1 - UNIFORM_JUMP_PROB) * kernel / kernel.sum(dim=1, keepdim=True) + UNIFORM_JUMP_PROB / num_keyframes


def mean_squared_distance(p: Tensor, q: Tensor) -> Tensor:
    """Mean squared difference of embeddings [..., width]; the arguments broadcast."""
    return (p - q).square().mean(dim=-1)


def median_step_distance(keyframes: Tensor) -> Tensor:
    """Median distance of consecutive keyframes that differ, [N]."""
    distances = mean_squared_distance(keyframes[:, 1:], keyframes[:, :-1])
    median = torch.where(distances > 0, distances, torch.nan).nanmedian(dim=1).values
    return torch.nan_to_num(median, nan=1.0)
