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
    """Return an array on the host, from any device. Floating-point tensors become double: NumPy has no bfloat16."""
    if not is_tensor(value):
        return np.asarray(value)
    detached = value.detach()
    return (detached.double() if detached.is_floating_point() else detached).cpu().numpy()


def rows_of(value: Any, num_rows: int, name: str) -> Array:
    """Return an array or tensor [N] or [N, 1] as an array [N] on the host; `ValueError` for another shape."""
    array = to_numpy(value)
    if array.shape not in ((num_rows,), (num_rows, 1)):
        raise ValueError(f"{name} must have the shape [{num_rows}], got {list(array.shape)}")
    return array.reshape(num_rows)


def row_mask(rows: Any, num_rows: int) -> Array:
    """Return which rows are named, bool [N], by indices, a slice or a mask; None: all."""
    mask = np.zeros(num_rows, bool)
    if rows is None or isinstance(rows, slice):
        mask[slice(None) if rows is None else rows] = True
        return mask
    indices = to_numpy(sorted(rows) if isinstance(rows, (set, frozenset)) else rows)
    if indices.size:  # an empty list or tensor has numbers of any type
        mask[indices] = True
    return mask


def like(example: Any, values: Array) -> Any:
    """Return values [N] in the shape of the example, and as a tensor on its device if it is one.

    Numbers have the floating-point type of the example, or float32; flags stay flags.
    """
    shaped = values.reshape(np.shape(example) if not is_tensor(example) else tuple(example.shape))
    if not is_tensor(example):
        return shaped
    if values.dtype == np.bool_:
        return example.bool().new_tensor(shaped)
    return (example if example.is_floating_point() else example.float()).new_tensor(shaped)


def like_rows(example: Any, values: Array) -> Any:
    """Return values [N] as a tensor on the device of the example if it is one, else as they are."""
    return like(example.reshape(-1), values) if is_tensor(example) else values


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
