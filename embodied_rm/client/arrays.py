"""Arrays of NumPy or of torch, without importing torch: tensors are recognized by their methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .wire import Array


def is_tensor(value: Any) -> bool:
    """Return whether a value is a torch tensor."""
    return hasattr(value, "new_tensor")


def to_numpy(value: Any) -> Array:
    """Return an array on the host; a tensor is copied from its device."""
    return value.detach().cpu().numpy() if is_tensor(value) else np.asarray(value)


def like(example: Any, values: Array) -> Any:
    """Return values as the kind of array that the example is: a tensor on its device with its dtype, or as they are."""
    return example.new_tensor(values) if is_tensor(example) else values


def stack_rows(rows: Sequence[Any]) -> Any:
    """Stack arrays, or tensors on their device, along a new first axis."""
    if not is_tensor(rows[0]):
        return np.stack([np.asarray(row) for row in rows])
    stacked = rows[0].new_empty((len(rows), *rows[0].shape))
    for index, row in enumerate(rows):
        stacked[index] = row
    return stacked


def merge_rows(mask: Array, inside: Any, outside: Any) -> Any:
    """Merge two arrays of rows, or tensors on their device: those of the mask from `inside`, in order."""
    shape = (len(mask), *outside.shape[1:])
    merged = outside.new_empty(shape) if is_tensor(outside) else np.empty(shape, outside.dtype)
    merged[np.flatnonzero(mask)] = inside
    merged[np.flatnonzero(~mask)] = outside
    return merged
