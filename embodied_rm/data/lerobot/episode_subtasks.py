"""Subtasks in the rows of `meta/episodes`: those of this package, and those of LeRobot's annotation tools (SARM)."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Subtask

SARM_PREFIXES = ("dense_", "sparse_", "")
"""Prefixes of the columns of SARM, the finest annotation first; without a prefix: those of older versions."""


def read_episode_subtasks(record: Mapping[str, Any]) -> tuple[Subtask, ...]:
    """Return the subtasks in the row of an episode. A `DataError` holds only a clause with the issue."""
    try:
        if {fmt.NAME_KEY, fmt.SUCCESS_KEY} <= set(record):  # a dataset of this package
            return read_subtasks(record, fmt.SUBTASK_COLUMNS)
        return read_sarm_subtasks(record)
    except (UserError, ValueError, TypeError) as error:
        raise DataError(f"the subtasks of episode {record['episode_index']} are invalid ({error})") from None


def read_subtasks(record: Mapping[str, Any], columns: Sequence[str]) -> tuple[Subtask, ...]:
    """Return the subtasks in the columns of names, first frames and ends, which are excluded."""
    values = (record.get(key) or () for key in columns)
    return tuple(Subtask(name=name, start=start, end=end) for name, start, end in zip(*values, strict=True))


def read_sarm_subtasks(record: Mapping[str, Any]) -> tuple[Subtask, ...]:
    """Return the subtasks of LeRobot's tools: dense ones, else sparse ones. Their last frames are included.

    A subtask that ends in the first frame of the next one gives this frame to the next one. Raises `ValueError` for
    columns of different length or without a value.
    """
    for prefix in SARM_PREFIXES:
        names, starts, ends = (record.get(f"{prefix}{key}") or () for key in fmt.SUBTASK_COLUMNS)
        if not names:
            if starts or ends:
                raise ValueError(f"{prefix}{fmt.SUBTASK_COLUMNS[0]} is missing")
            continue
        length, excluded_ends = record["length"], [end + 1 for end in ends]
        limits = [min(end, later) for end, later in zip(excluded_ends, [*starts[1:], length], strict=True)]
        if any(later < earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"{prefix}{fmt.SUBTASK_COLUMNS[1]} is not in order")
        return tuple(
            Subtask(name=name, start=start, end=end) for name, start, end in zip(names, starts, limits, strict=True)
        )
    return ()
