"""Which views can be believed: a camera that shows one colour is dead, and "done" is what all but any one view say too.

The second holds for what is read off the pictures; where a reference is followed, its way says what is done.

A photograph of the goal before one camera, a hand before another, a camera that somebody turned away: with three views
the two others still show what happened.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from embodied_rm.types import BoolArray, Views

MAJORITY = 3
"""Views from which on one can be doubted: of two that disagree nobody knows which is right."""
STRIDE = 4
"""Pixels are looked at in steps of so many, along both sides."""
BLANK = 8
"""Largest difference of two pixels, in each colour of 0 to 255, in a picture that shows nothing."""


def agreed(done: Tensor, without: Tensor) -> Tensor:
    """Probabilities [N] of "done" that hold without any one view: at most the root of the least of `without` [N, V].

    Fewer views see less: half of a certainty of 1/4 is left, but nothing of a certainty that one view alone has.
    """
    return torch.minimum(done, without.amin(dim=1).sqrt())


def there(views: Views) -> BoolArray:
    """bool [N, V]: the views that are present and show more than one colour."""
    sparse = views.frames[:, :, ::STRIDE, ::STRIDE]
    if isinstance(sparse, np.ndarray):
        width = np.ptp(sparse, axis=(2, 3)).max(axis=-1)
    else:
        width = (sparse.amax(dim=(2, 3)) - sparse.amin(dim=(2, 3))).amax(dim=-1).cpu().numpy()
    alive: BoolArray = width > BLANK
    return alive if views.present is None else alive & views.present
