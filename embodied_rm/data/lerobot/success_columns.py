"""Success in LeRobot datasets: columns per episode and per frame, of LeRobot and of annotation tools of others."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from embodied_rm.data.lerobot import format as fmt
from embodied_rm.data.lerobot.parquet import unwrap_singleton

SUCCESS_COLUMNS = (
    "success",
    "next.success",
    "is_success",
    "next.is_success",
    "is_successful",
    "task_success",
    "episode_success",
    "is_episode_successful",
    "outcome",
    "episode_outcome",
)
"""Names in the order in which they are looked for; the first one is also that of this package, per episode."""
SUCCESS_PATTERN = re.compile(r"success|succeeded|outcome", re.IGNORECASE)
IGNORED_PREFIXES = ("stats/", "videos/", fmt.METADATA_PREFIX, fmt.IMAGE_PREFIX)
"""Prefixes of columns that annotate nothing, whatever their names: statistics, files, and texts and images."""
SUCCESS_WORDS = frozenset(("success", "successful", "succeeded", "true", "yes", "1", "1.0"))
FAILURE_WORDS = frozenset(("failure", "fail", "failed", "unsuccessful", "false", "no", "0", "0.0"))
UNKNOWN_WORDS = frozenset(("", "unknown", "unlabeled", "none", "null", "nan", "n/a"))


def parse_success(value: Any) -> bool | None:
    """Return the success that a value states, None if it is unknown; `ValueError` for a value with another meaning."""
    value = unwrap_singleton(value)
    if value is None or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else None
    if word in SUCCESS_WORDS | FAILURE_WORDS:
        return word in SUCCESS_WORDS
    if word in UNKNOWN_WORDS:
        return None
    raise ValueError(f"{value!r}; true, false, success, failure or unknown was expected")


def episode_success(record: Mapping[str, Any]) -> bool | None:
    """Return the success in the row of an episode, of the first column that states one; None: unknown."""
    for name in SUCCESS_COLUMNS:
        try:
            success = parse_success(record.get(name))
        except ValueError:
            continue  # `find_unread_success` reports it
        if success is not None:
            return success
    return None


def seems_success(name: str) -> bool:
    """Return whether a column seems to state a success under a name that is not read."""
    is_read = name in SUCCESS_COLUMNS or name.startswith(IGNORED_PREFIXES)
    return not is_read and SUCCESS_PATTERN.search(name) is not None


def describe_unread_success(columns: Iterable[str]) -> str:
    """Return a clause on the columns that seem to state a success; "" if there are none."""
    names = sorted(filter(seems_success, columns))
    return (
        f"has {', '.join(names)}: not read, {', '.join(SUCCESS_COLUMNS[:3])} or another was expected" if names else ""
    )


def find_unread_success(records: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> Iterator[str]:
    """Yield a clause per column of success in the rows of episodes whose name or values are not understood."""
    if clause := describe_unread_success(columns):
        yield clause
    unread: set[str] = set()
    for record in records:
        for name in SUCCESS_COLUMNS:
            try:
                parse_success(record.get(name))
            except ValueError as error:
                if name not in unread:
                    yield f"{name} of episode {record['episode_index']} is {error}: not read"
                unread.add(name)


def last_success(values: Sequence[Any]) -> bool | None:
    """Return whether the last of some values over time is a success; None if it states nothing, or an earlier one is.

    `ValueError`: a value is not understood.
    """
    *earlier, last = values
    success = parse_success(last)
    if success is False and any(map(parse_success, earlier)):
        return None
    return success
