"""Which views can be believed: a camera that shows one color is dead, and "done" is what all but any one view say too.

The second holds for what is read off the images; where a reference is followed, its way says what is done.

A photograph of the goal before one camera, a hand before another, a camera that somebody turned away: with three views
the two others still show what happened.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embodied_rm.types import BoolArray, Views

MIN_VIEWS_LEAVE_ONE_OUT = 3
"""Views from which on one can be doubted: of two that disagree nobody knows which is right."""
PIXEL_STRIDE = 4
"""Pixels are looked at in steps of so many, along both sides."""
MAX_BLANK_RANGE = 8
"""Largest difference of two pixels, in each color of 0 to 255, in an image that shows nothing."""


def leave_one_out_success(done: Tensor, leave_one_out: Tensor) -> Tensor:
    """Probabilities [N] of "done" that hold without any one view: at most the root of the least of `without` [N, V].

    Fewer views see less: half of a certainty of 1/4 is left, but nothing of a certainty that one view alone has.
    """
    return torch.minimum(done, leave_one_out.amin(dim=1).sqrt())


def visible_views(views: Views) -> BoolArray:
    """bool [N, V]: the views that are present and show more than one color."""
    subsampled = views.frames[:, :, ::PIXEL_STRIDE, ::PIXEL_STRIDE]
    if isinstance(subsampled, np.ndarray):
        value_range = np.ptp(subsampled, axis=(2, 3)).max(axis=-1)
    else:
        value_range = (subsampled.amax(dim=(2, 3)) - subsampled.amin(dim=(2, 3))).amax(dim=-1).cpu().numpy()
    nonblank: BoolArray = value_range > MAX_BLANK_RANGE
    return nonblank if views.present is None else nonblank & views.present
