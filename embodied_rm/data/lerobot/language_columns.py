"""Subtasks in LeRobot's column `language_persistent`: rows of language, each active from its time until the next one.

Source: `lerobot/datasets/language.py`. The rows of an episode are repeated in all its frames.
"""

from itertools import pairwise
from typing import Any

import numpy as np

from embodied_rm.data.video.decoder import FrameTimes
from embodied_rm.types import Subtask

PERSISTENT_COLUMN = "language_persistent"
SUBTASK_STYLE = "subtask"


def language_subtasks(language: Any, times: FrameTimes, fps: float) -> tuple[Subtask, ...]:
    """Return the subtasks of an episode.

    Of rows at one time the last one counts. A row without content ends the subtask before it.

    Args:
        language: Rows of language.
        times: Times of the frames, to which those of the rows of language refer (s).
        fps: Frame rate of the dataset.

    Raises:
        ValueError: The rows have another layout.
    """
    if not isinstance(language, list):
        raise ValueError(f"{language!r} is no list of rows")
    rows = sorted(filter(is_subtask, language), key=lambda row: row["timestamp"])
    starts = np.searchsorted(np.maximum.accumulate(times) + 0.5 / fps, [row["timestamp"] for row in rows]).tolist()
    subtasks = []
    for row, (start, end) in zip(rows, pairwise([*starts, len(times)]), strict=True):
        name = (row["content"] or "").strip()
        if name and start < end:
            subtasks.append(Subtask(name=name, start=start, end=end))
    return tuple(subtasks)


def is_subtask(row: Any) -> bool:
    """Whether a row of language is that of a subtask."""
    has_keys = isinstance(row, dict) and {"style", "content", "timestamp"} <= row.keys()
    if not has_keys or not isinstance(row["content"], str | None):
        raise ValueError(f"{row!r} is no row with style, content and timestamp")
    return row["style"] == SUBTASK_STYLE
