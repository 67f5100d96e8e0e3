"""Parse annotations sent by the page, without trusting them."""

from typing import Any

from embodied_rm.data.annotation import Annotation
from embodied_rm.errors import UserError
from embodied_rm.types import Subtask


def parse_annotation(payload: Any) -> Annotation:
    """Parse the annotation in the content of a request; raise `UserError` if it is not valid."""
    is_annotation = isinstance(payload, dict) and set(payload) == {"subtasks", "success"}
    if not is_annotation or not isinstance(payload["subtasks"], list):
        raise UserError('{"subtasks": [...], "success": true, false or null} was expected')
    if payload["success"] is not None and not isinstance(payload["success"], bool):
        raise UserError(f"success is {payload['success']!r}; true, false or null was expected")
    subtasks = tuple(_parse_subtask(position, subtask) for position, subtask in enumerate(payload["subtasks"], 1))
    return Annotation(subtasks=subtasks, success=payload["success"])


def _parse_subtask(position: int, payload: Any) -> Subtask:
    if not isinstance(payload, dict) or set(payload) != {"name", "start", "end"}:
        raise UserError(f'subtask {position}: {{"name", "start", "end"}} was expected')
    name = payload["name"]
    is_text = isinstance(name, str) and bool(name.strip())
    if not is_text or any(ord(char) < 32 or "\ud800" <= char <= "\udfff" for char in name):
        raise UserError(f"subtask {position} is named {name!r}; a line of text was expected")
    for key in ("start", "end"):
        if type(payload[key]) is not int:
            raise UserError(f"subtask {position}, {name!r}: {key} is {payload[key]!r}; a frame index was expected")
    return Subtask(name=name, start=payload["start"], end=payload["end"])
