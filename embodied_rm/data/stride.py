"""Frame selection by stride, and the subtasks of the selected frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.errors import DataError
from embodied_rm.types import IntArray, Subtask


def stride_indices(length: int, stride: int) -> IntArray:
    """Return indices of every `stride`-th frame and of the last one, which shows the outcome."""
    if stride < 1:
        raise DataError(f"stride must be >= 1, got {stride}")
    frame_indices = np.arange(0, length, stride, dtype=np.int64)
    return frame_indices if frame_indices[-1] == length - 1 else np.append(frame_indices, length - 1)


def resample_subtasks(subtasks: Sequence[Subtask], frame_indices: IntArray) -> tuple[Subtask, ...]:
    """Convert subtasks to indices of the selected frames. `DataError`: one contains no selected frame."""
    resampled = []
    for subtask in subtasks:
        start, end = (int(i) for i in np.searchsorted(frame_indices, [subtask.start, subtask.end]))
        if start == end:
            span = f"which lasts from frame {subtask.start} to {subtask.end - 1}"
            raise DataError(f"the stride is too large: it keeps no frame of subtask {subtask.name!r}, {span}")
        resampled.append(Subtask(name=subtask.name, start=start, end=end))
    return tuple(resampled)
