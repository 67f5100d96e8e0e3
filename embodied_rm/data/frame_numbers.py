"""Frame numbers in the annotations of datasets."""

import math
from typing import Any


def parse_frame(value: Any, fps: float | None = None) -> int:
    """Return a frame number; the nearest one of a time (s) if the frame rate is given.

    `ValueError`: it is no number, or a fraction, which may be a time and is never rounded to a frame.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or (fps is None and value != int(value)):
        raise ValueError(f"a frame is {value!r}")
    return int(value) if fps is None else round(value * fps)
