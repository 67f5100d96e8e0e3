"""A hidden Markov model along demonstrations: the state is the keyframe that a video is at. Pure functions of tensors.

Time is counted in change, not in seconds: a keyframe follows the last one when the image has changed by a threshold,
and the belief moves only when the video has changed by as much. A video that stands still says nothing new, and a slow
or a fast one is aligned like any other. Shapes: N videos, S keyframes of all demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

CHANGE_PER_KEYFRAME = 0.15  # change between two keyframes, as a fraction of the mean distance of two frames
TRANSITION_WIDTH = 1.5  # keyframes per change over which the probability of a transition falls by e
DRIFT, MAX_DRIFT_KEYFRAMES = 0.5, 2
"""Log odds per keyframe of the transition at a change whose direction is known, and the keyframes that they add up to.
"""
UNIFORM_JUMP_PROB = 0.01  # probability of a transition to any keyframe
NEIGHBORHOOD = 3  # keyframes whose belief counts as being at the middle one


def mean_pairwise_distance(distances: Tensor) -> Tensor:
    """Mean of the distances [R, R] of different keyframes, > 0."""
    size = len(distances)
    if size < 2:
        return distances.new_tensor(1.0)
    return (distances.sum() / (size * (size - 1))).clamp_min(1e-6)


def keyframe_indices(distances: Tensor, threshold: float) -> list[int]:
    """Select the first frame, and each frame that differs from the last one selected by more than the threshold.

    Args:
        distances: Distances [T, T] of the frames of a demonstration.
        threshold: Change between two keyframes.
    """
    rows = distances.tolist()
    selected = [0]
    for t, row in enumerate(rows):
        if row[selected[-1]] > threshold:
            selected.append(t)
    return selected


def transition_probs(num_keyframes: Sequence[int], drift: float = 0.0) -> Tensor:
    """Transition probabilities [S, S] between the keyframes of demonstrations of these lengths.

    Within a demonstration they fall with the distance of two keyframes. Without a drift they are the same in both
    directions: a preference for the forward one would raise the curve without any observation.

    Args:
        num_keyframes: Number of keyframes of each demonstration.
        drift: Log odds of a transition per keyframe forward, for up to `MAX_DRIFT_KEYFRAMES`; negative: backward.
    """
    blocks = []
    for count in num_keyframes:
        index = torch.arange(count, dtype=torch.float32)
        ahead = index[None] - index[:, None]
        drifted = drift * ahead.clamp(-MAX_DRIFT_KEYFRAMES, MAX_DRIFT_KEYFRAMES)
        kernel = torch.exp(drifted - ahead.abs() / TRANSITION_WIDTH)
        blocks.append(kernel / kernel.sum(dim=1, keepdim=True))
    within = torch.block_diag(*blocks)
    return (1 - UNIFORM_JUMP_PROB) * within + UNIFORM_JUMP_PROB / len(within)


def update_belief(predicted: Tensor, log_likelihood: Tensor) -> Tensor:
    """Bayes' rule: belief [N, S] from the predicted probabilities [N, S] and log likelihoods [N, S]."""
    return torch.softmax(predicted.clamp_min(1e-30).log() + log_likelihood, dim=1)


def neighborhood_belief(belief: Tensor, num_keyframes: Sequence[int]) -> Tensor:
    """Belief [N, S] to be at each keyframe or a neighbor of it in its demonstration."""
    half = NEIGHBORHOOD // 2
    parts = [
        nn.functional.pad(part, (half, half)).unfold(1, NEIGHBORHOOD, 1).sum(dim=2)
        for part in belief.split(list(num_keyframes), dim=1)
    ]
    return torch.cat(parts, dim=1)


def advance_coverage(coverage: Tensor, belief: Tensor, num_keyframes: Sequence[int]) -> Tensor:
    """Advance the ordered coverage [N, S] by one belief [N, S].

    Entry s is the largest expected fraction of the demonstration's keyframes that the video has visited in order, up to
    s: the longest increasing chain of keyframes, each weighted by the belief to be there. A video that runs backward
    visits all keyframes and covers almost none.
    """
    visits = neighborhood_belief(belief, num_keyframes)
    parts = []
    sizes = list(num_keyframes)
    for covered, visit in zip(coverage.split(sizes, dim=1), visits.split(sizes, dim=1), strict=True):
        before = nn.functional.pad(covered.cummax(dim=1).values[:, :-1], (1, 0))
        parts.append(torch.maximum(covered, before + visit / covered.shape[1]))
    return torch.cat(parts, dim=1)
