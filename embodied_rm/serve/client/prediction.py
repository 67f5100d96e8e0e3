"""What a service says of frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

import numpy.typing as npt

Array = npt.NDArray[Any]
Frames = Mapping[str, Array]
"""View -> uint8 [N, H, W, 3]."""


class RewardPrediction(NamedTuple):
    """What a reward model says of one frame of N environments."""

    progress: Array
    """float32 [N] in [0, 1]: the progress. Of a frame that is not `valid` the one before it."""
    valid: Array
    """bool [N]: whether the frame was judged."""
    subtask: Array
    """int64 [N]: the step under way."""
    success: Array
    """float32 [N]: probability that the task is done; nan where the model does not say."""
    uncertainty: Array
    """float32 [N]: expected error of the progress."""
    ood: Array
    """float32 [N]: how unusual the frame is, above 1 more than any that the model knows; nan where it does not say."""
    state: Optional[bytes]
    """What the service remembers of the episodes, where it was asked to send that along."""
