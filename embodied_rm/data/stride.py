"""Which frames are kept when an episode is thinned out, and what becomes of its steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.types import IntArray, Step


def kept_frames(length: int, stride: int) -> IntArray:
    """Indices of every `stride`-th frame from the first on, and always the last: there the outcome shows."""
    if stride < 1:
        raise DataError(f"stride must be >= 1, got {stride}")
    kept = np.arange(0, length, stride, dtype=np.int64)
    return kept if kept[-1] == length - 1 else np.append(kept, length - 1)


def thin_steps(steps: Sequence[Step], kept: IntArray) -> tuple[Step, ...]:
    """The steps in terms of the kept frames: each keeps exactly those of its frames that are kept.

    Raises `DataError` when none of a step's frames is kept: a smaller stride is needed.
    """
    thinned = []
    for step in steps:
        start, end = (int(i) for i in np.searchsorted(kept, [step.start, step.end]))
        if start == end:
            raise DataError(
                f"the stride is too large: it keeps no frame of step {step.name!r}, "
                f"which lasts from frame {step.start} to {step.end - 1}"
            )
        thinned.append(Step(name=step.name, start=start, end=end))
    return tuple(thinned)
