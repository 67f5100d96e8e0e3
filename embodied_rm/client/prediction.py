"""Predictions of a reward service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import numpy.typing as npt

Array = npt.NDArray[Any]
Frames = Mapping[str, Array]
"""View -> uint8 [N, H, W, 3]."""


class RewardPrediction(NamedTuple):
    """Predictions for one frame of each of N environments."""

    progress: Array
    """float32 [N] in [0, 1]. Where a frame is not `valid`, the value of the previous frame."""
    valid: Array
    """bool [N]: whether the model could score the frame."""
    subtask: Array
    """int64 [N]: index of the current subtask."""
    success: Array
    """float32 [N]: probability of success; NaN if the model does not predict it."""
    uncertainty: Array
    """float32 [N]: expected absolute error of the progress."""
    ood: Array
    """float32 [N]: out-of-distribution score, above 1 beyond the training data; NaN if unknown."""
    state: Optional[bytes]
    """Serialized state of the episodes, if requested."""
