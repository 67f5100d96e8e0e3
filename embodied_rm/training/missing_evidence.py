"""Success under missing evidence: a covered lens or a hidden view must not make a success.

Where the views that are left cannot tell a finished task from one that is nearly finished, a balanced loss predicts
success in half of the cases. These functions make the model expect failure there.
"""

from dataclasses import replace

import numpy as np
import torch

from embodied_rm.training.augment import AugmentConfig, draw_late_frames
from embodied_rm.training.batches import LabeledBatch
from embodied_rm.types import BoolArray

HIDDEN_VIEW_SUCCESS_FRACTION = 0.5
"""Fraction of the successes that remain targets where a view is hidden."""


def cover_halves(batch: LabeledBatch, config: AugmentConfig, generator: torch.Generator) -> LabeledBatch:
    """Blacken the left or the right half of all views of some episodes from some frame on; success is 0 there.

    Args:
        batch: A batch of images. Goal images stay whole.
        config: Its `half_cover_prob` is the probability per episode.
        generator: Of random numbers; none is drawn for probability 0.

    Returns:
        The batch for probability 0, else one with other images and targets.
    """
    if config.half_cover_prob == 0:
        return batch
    B, width = len(batch.frames), batch.frames.shape[4]
    chosen = torch.rand(B, 1, generator=generator) < config.half_cover_prob
    is_right = (torch.rand(B, generator=generator) < 0.5).numpy()
    covered = (chosen & draw_late_frames(torch.from_numpy(batch.frame_indices), generator)).numpy()
    frames = batch.frames.copy()
    for episode, timestep in zip(*np.nonzero(covered), strict=True):
        half = slice(width // 2, None) if is_right[episode] else slice(width // 2)
        frames[episode, timestep, :, :, half] = 0
    targets = {name: replace(target, success=target.success & ~covered) for name, target in batch.targets.items()}
    return replace(batch, frames=frames, targets=targets, negatives_known=batch.negatives_known & ~covered[:, 1])


def discount_success(batch: LabeledBatch, visible: BoolArray, rng: np.random.Generator) -> LabeledBatch:
    """Make the success of random frames no target where a view is hidden; failures stay targets.

    Args:
        batch: A batch of B episodes at M - 1 frames and a goal image.
        visible: Views that augmentation has left, bool [B, M, V].
        rng: Of random numbers, of which each call draws the same number.

    Returns:
        The batch, in which `HIDDEN_VIEW_SUCCESS_FRACTION` of these successes are known.
    """
    hidden = (batch.present & ~visible)[:, :-1].any(axis=2)
    forgotten = hidden & (rng.random(hidden.shape) >= HIDDEN_VIEW_SUCCESS_FRACTION)
    targets = {
        name: replace(target, success_known=target.success_known & ~(forgotten & target.success))
        for name, target in batch.targets.items()
    }
    return replace(batch, targets=targets)
