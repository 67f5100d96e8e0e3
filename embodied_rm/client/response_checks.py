"""Checks of what a server answers: any server may answer, and a prediction becomes a reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .wire import Array

COLUMN_DTYPES: dict[str, np.dtype[Any]] = {"valid": np.dtype("|b1"), "subtask": np.dtype("<i8")}
COLUMN_DTYPES.update(dict.fromkeys(("progress", "success", "uncertainty", "ood"), np.dtype("<f4")))
"""Column of a prediction -> its NumPy dtype."""
ROUNDING = 1e-3
"""How far a progress or a probability may lie outside [0, 1]."""
MAX_SUBTASK = 1 << 53
"""Largest index of a subtask: JSON and floats hold no larger one exactly."""
MAX_SIDE_PX = 4096


def check_columns(columns: Mapping[str, Array], num_rows: int) -> None:
    """Raise `ValueError` unless these are the columns of a prediction for each of the rows of a request."""
    for name, dtype in COLUMN_DTYPES.items():
        column = columns[name]
        if column.dtype != dtype or column.shape != (num_rows,):
            raise ValueError(f"{name} must be {dtype} [{num_rows}], got {column.dtype} {list(column.shape)}")
    check_range(columns, "progress", 0.0, 1.0)
    check_range(columns, "success", -np.inf, 1.0)  # a negative value, or none, is unknown
    check_range(columns, "uncertainty", 0.0, np.inf)
    check_range(columns, "subtask", -1, MAX_SUBTASK)


def check_range(columns: Mapping[str, Array], name: str, low: float, high: float) -> None:
    """Raise `ValueError` for a value beyond these bounds; only a success may be nan."""
    values = columns[name]
    is_wrong = (values < low - ROUNDING) | (values > high + ROUNDING) | (np.isnan(values) & (name != "success"))
    if is_wrong.any():
        raise ValueError(f"{name} must be in [{low:g}, {high:g}], got {values[is_wrong][0]:g}")


def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless these are the parameters in the metadata of a reward model."""
    views, image_size = parameters["views"], parameters["image_size"]
    # A service of an earlier version names no threshold: its models have none.
    threshold = parameters.get("success_threshold")
    check_value("views", views, views is None or (is_list_of(views, str) and 0 < len(views) == len(set(views))))
    is_size = (
        is_list_of(image_size, int) and len(image_size) == 2 and all(0 < side <= MAX_SIDE_PX for side in image_size)
    )
    check_value("image_size", image_size, image_size is None or is_size)
    is_share = isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and 0 < threshold <= 1
    check_value("success_threshold", threshold, threshold is None or is_share)
    for name in ("predicts_success", "supports_restore"):
        check_value(name, parameters[name], type(parameters[name]) is bool)


def check_value(name: str, value: Any, is_possible: bool) -> None:
    """Raise `ValueError` for a value that is not possible."""
    if not is_possible:
        raise ValueError(f"{name} cannot be {value!r}")


def is_list_of(value: Any, kind: type) -> bool:
    """Return whether a value is a list with elements of one type."""
    return isinstance(value, list) and all(type(element) is kind for element in value)
