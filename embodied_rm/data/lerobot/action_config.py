"""Subtasks in AgiBot's column `action_config` of episodes: a list of segments with a text, a first frame and an end.

Source: AgiBot World, "json file format". The end of a segment is the first frame of the next one.
"""

from collections.abc import Mapping
from typing import Any

from embodied_rm.data.frame_numbers import parse_frame
from embodied_rm.types import Subtask

ACTION_COLUMN = "action_config"


def read_action_config(record: Mapping[str, Any]) -> tuple[Subtask, ...]:
    """Return the subtasks in the row of an episode; `ValueError` if its segments have another layout."""
    segments = record.get(ACTION_COLUMN)
    if not isinstance(segments, list | None):
        raise ValueError(f"{ACTION_COLUMN} is {segments!r}, a list was expected")
    return tuple(map(_parse_segment, segments or ()))


def _parse_segment(segment: Any) -> Subtask:
    if not isinstance(segment, dict) or not isinstance(name := segment.get("action_text"), str) or not name.strip():
        raise ValueError(f"{ACTION_COLUMN} has {segment!r}, an action_text, start_frame and end_frame were expected")
    start, end = (parse_frame(segment.get(key)) for key in ("start_frame", "end_frame"))
    return Subtask(name=name.strip(), start=start, end=end)
