"""Annotations as the page sends them, believed in nothing."""

from __future__ import annotations

import json
from typing import Any

from embodied_rm.data.annotation import Annotation
from embodied_rm.errors import UserError
from embodied_rm.types import Subtask


def parse_annotation(body: bytes) -> Annotation:
    """The annotation in a request. Raises `UserError` saying what is wrong with it."""
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the request holds no valid JSON") from None
    if not isinstance(payload, dict) or set(payload) != {"steps", "success"} or not isinstance(payload["steps"], list):
        raise UserError('{"steps": [...], "success": true, false or null} was expected')
    if payload["success"] is not None and not isinstance(payload["success"], bool):
        raise UserError(f"success is {payload['success']!r}; true, false or null was expected")
    return Annotation(
        subtasks=tuple(_parse_subtask(index + 1, subtask) for index, subtask in enumerate(payload["steps"])),
        success=payload["success"],
    )


def _parse_subtask(position: int, payload: Any) -> Subtask:
    if not isinstance(payload, dict) or set(payload) != {"name", "start", "end"}:
        raise UserError(f'step {position}: {{"name", "start", "end"}} was expected')
    name = payload["name"]
    if (
        not isinstance(name, str)
        or not name.strip()
        or any(ord(char) < 32 or "\ud800" <= char <= "\udfff" for char in name)
    ):
        raise UserError(f"step {position} is named {name!r}; a line of text was expected")
    for key in ("start", "end"):
        if type(payload[key]) is not int:
            raise UserError(f"step {position}, {name!r}: {key} is {payload[key]!r}; the number of a frame was expected")
    return Subtask(name=name, start=payload["start"], end=payload["end"])
