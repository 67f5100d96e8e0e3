"""Annotations as the page sends them, believed in nothing."""

from __future__ import annotations

import json
from typing import Any

from embodied_rm.data.annotation import Annotation
from embodied_rm.errors import UserError
from embodied_rm.types import Step


def annotation_from(body: bytes) -> Annotation:
    """The annotation in a request. Raises `UserError` saying what is wrong with it."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("the request holds no valid JSON") from None
    if not isinstance(told, dict) or set(told) != {"steps", "success"} or not isinstance(told["steps"], list):
        raise UserError('{"steps": [...], "success": true, false or null} was expected')
    if told["success"] is not None and not isinstance(told["success"], bool):
        raise UserError(f"success is {told['success']!r}; true, false or null was expected")
    return Annotation(steps=tuple(_step(i + 1, step) for i, step in enumerate(told["steps"])), success=told["success"])


def _step(place: int, told: Any) -> Step:
    if not isinstance(told, dict) or set(told) != {"name", "start", "end"}:
        raise UserError(f'step {place}: {{"name", "start", "end"}} was expected')
    name = told["name"]
    if not isinstance(name, str) or not name.strip() or any(ord(c) < 32 or "\ud800" <= c <= "\udfff" for c in name):
        raise UserError(f"step {place} is named {name!r}; a line of text was expected")
    for key in ("start", "end"):
        if type(told[key]) is not int:
            raise UserError(f"step {place}, {name!r}: {key} is {told[key]!r}; the number of a frame was expected")
    return Step(name=name, start=told["start"], end=told["end"])
