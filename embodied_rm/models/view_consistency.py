"""Robustness to single views: a view of one color is absent, and success must hold without any one view.

The second rule applies to the success head; with a reference, its alignment gives the success score.

It guards against a photograph of the goal before one camera, an occluded camera and a displaced camera: with three
views, the other two still show the scene.
"""

import numpy as np
import torch
from torch import Tensor

from embodied_rm.types import BoolArray, Views

MIN_VIEWS_LEAVE_ONE_OUT = 3
"""Fewest views for the leave-one-out rule: of two views that disagree, neither is known to be right."""
PIXEL_STRIDE = 4  # stride of the pixels that are checked, along both sides
MAX_BLANK_RANGE = 8  # largest difference of two pixels per color channel, of 0 to 255, in a blank image


def leave_one_out_success(done: Tensor, leave_one_out: Tensor) -> Tensor:
    """Limit the success probability [N] by the predictions [N, V] without each view.

    The limit is the square root of the smallest of them, since fewer views carry less evidence: a probability of 1/4
    without one view still permits 1/2, and 0 permits 0.
    """
    return torch.minimum(done, leave_one_out.amin(dim=1).sqrt())


def visible_views(views: Views) -> BoolArray:
    """bool [N, V]: views that are present and not of a single color."""
    subsampled = views.frames[:, :, ::PIXEL_STRIDE, ::PIXEL_STRIDE]
    if isinstance(subsampled, np.ndarray):
        value_range = np.ptp(subsampled, axis=(2, 3)).max(axis=-1)
    else:
        value_range = (subsampled.amax(dim=(2, 3)) - subsampled.amin(dim=(2, 3))).amax(dim=-1).cpu().numpy()
    nonblank: BoolArray = value_range > MAX_BLANK_RANGE
    return nonblank if views.present is None else nonblank & views.present
