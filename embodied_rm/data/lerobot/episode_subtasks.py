"""Subtasks in the rows of `meta/episodes`: of this package, of LeRobot's annotation tools (SARM), and of AgiBot."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from embodied_rm.data.frame_numbers import parse_frame
from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.action_config import ACTION_COLUMN, read_action_config
from embodied_rm.data.lerobot.parquet import unwrap_singleton
from embodied_rm.data.lerobot.success_columns import IGNORED_PREFIXES
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Subtask

SARM_PREFIXES = ("dense_", "sparse_", "")
"""Prefixes of the columns of SARM, the finest annotation first; without a prefix: those of older versions."""
TIME_COLUMNS = ("subtask_start_times", "subtask_end_times")
"""Columns of SARM in seconds, read where the frames are missing."""
SUBTASK_PATTERN = re.compile(
    r"sub_?task|.task_index$|(^|[._/])(skill|phase|segment|stage)s?(_(names?|index|indices|ids?|labels?|texts?))?$",
    re.IGNORECASE,
)
"""Columns of episodes or frames that seem to annotate subtasks; an index of tasks beside that of LeRobot is one."""
READ_COLUMNS = frozenset(
    (ACTION_COLUMN, *(prefix + key for prefix in SARM_PREFIXES for key in (*fmt.SUBTASK_COLUMNS, *TIME_COLUMNS)))
)
OWN_COLUMNS = {fmt.NAME_KEY, fmt.SUCCESS_KEY, *fmt.SUBTASK_COLUMNS}
"""Columns that every dataset of this package has; without a prefix, SARM's have times as well."""


def read_episode_subtasks(record: Mapping[str, Any], fps: float) -> tuple[Subtask, ...]:
    """Return the subtasks in the row of an episode. A `DataError` holds only a clause with the issue."""
    try:
        if not set(record) >= OWN_COLUMNS or not set(record).isdisjoint(TIME_COLUMNS):
            subtasks = read_sarm_subtasks(record, fps, SARM_PREFIXES)
        else:  # a dataset of this package, which a tool may have annotated later
            subtasks = read_subtasks(record, fmt.SUBTASK_COLUMNS) or read_sarm_subtasks(record, fps, SARM_PREFIXES[:-1])
        return subtasks or read_action_config(record)
    except (UserError, ValueError, TypeError) as error:
        raise DataError(f"the subtasks of episode {record['episode_index']} are invalid ({error})") from None


def read_subtasks(record: Mapping[str, Any], columns: Sequence[str]) -> tuple[Subtask, ...]:
    """Return the subtasks in the columns of names, first frames and ends, which are excluded."""
    values = (record.get(key) or () for key in columns)
    return tuple(
        Subtask(name=name, start=parse_frame(start), end=parse_frame(end))
        for name, start, end in zip(*values, strict=True)
    )


def read_sarm_subtasks(record: Mapping[str, Any], fps: float, prefixes: Sequence[str]) -> tuple[Subtask, ...]:
    """Return the subtasks of LeRobot's tools: those of the first prefix. Their last frames are included.

    A subtask that ends in the first frame of the next one gives this frame to the next one. Raises `ValueError` for
    columns of different length, without a value, or out of order.
    """
    for prefix in prefixes:
        names, starts, ends = (_read_list(record, f"{prefix}{key}") for key in fmt.SUBTASK_COLUMNS)
        if names and not starts and not ends:
            starts, ends = ([parse_frame(t, fps) for t in _read_list(record, f"{prefix}{key}")] for key in TIME_COLUMNS)
        if not names:
            if starts or ends:
                raise ValueError(f"{prefix}{fmt.SUBTASK_COLUMNS[0]} is missing")
            continue
        if not starts and not ends:
            continue  # `find_unread_subtasks` reports it
        starts, ends = [parse_frame(start) for start in starts], [parse_frame(end) for end in ends]
        limits = [min(end + 1, later) for end, later in zip(ends, [*starts[1:], record["length"]], strict=True)]
        if any(later < earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"{prefix}{fmt.SUBTASK_COLUMNS[1]} is not in order")
        return tuple(
            Subtask(name=_to_name(name), start=start, end=limit)
            for name, start, end, limit in zip(names, starts, ends, limits, strict=True)
            if not start == limit <= end  # another one starts in its first frame
        )
    return ()


def find_unread_subtasks(columns: Collection[str]) -> Iterator[str]:
    """Yield a clause for columns of episodes that seem to annotate subtasks and are not read."""
    read = {ACTION_COLUMN}
    for prefix in SARM_PREFIXES:
        groups = [[f"{prefix}{key}" for key in keys] for keys in (fmt.SUBTASK_COLUMNS[1:], TIME_COLUMNS)]
        if any(set(group) <= set(columns) for group in groups):
            read |= {f"{prefix}{fmt.SUBTASK_COLUMNS[0]}", *groups[0], *groups[1]}
    if unread := sorted(set(filter(seems_subtask, columns)) - read):
        expected = " and ".join((*fmt.SUBTASK_COLUMNS[1:], "subtask_names"))
        yield f"has {', '.join(unread)}: not read, {expected} were expected"


def seems_subtask(name: str) -> bool:
    """Return whether a column of episodes or frames seems to annotate subtasks."""
    return SUBTASK_PATTERN.search(name) is not None and not name.startswith(IGNORED_PREFIXES)


def _read_list(record: Mapping[str, Any], key: str) -> list[Any]:
    """Return the values of a column of lists, whose entries may be lists of one."""
    values = record.get(key) or []
    if not isinstance(values, list):
        raise ValueError(f"{key} is {values!r}, a list was expected")
    return [unwrap_singleton(value) for value in values]


def _to_name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"a subtask is named {value!r}")
    return value
