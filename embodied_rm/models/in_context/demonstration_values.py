"""Check the values and shapes of an encoded demonstration that comes from a file."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.in_context.encoded_demonstration import EncodedDemonstration, EncodedView

MIN_KEYFRAMES = 2
ROUNDING = 1e-3  # of a sum of durations


def check_demonstration(demonstration: EncodedDemonstration) -> None:
    """Raise `UserError` for values that no demonstration has."""
    progress, duration, subtasks = demonstration.progress, demonstration.duration, demonstration.subtasks
    rows = (len(progress),) if progress.ndim == 1 else (0,)
    if rows[0] < MIN_KEYFRAMES or not rows == tuple(duration.shape) == subtasks.shape:
        raise UserError(f"progress, duration and subtasks must be of {MIN_KEYFRAMES} or more keyframes each")
    check_tensor("progress", progress, rows, 0.0, 1.0)
    check_tensor("duration", duration, rows, 0.0, 1.0)
    if not float(progress.max()) > float(progress.min()):
        raise UserError("progress must rise, and is the same at all keyframes")
    if abs(float(duration.sum()) - 1) > ROUNDING:
        raise UserError(f"duration must have the sum 1, got {float(duration.sum()):g}")
    if subtasks.dtype.kind != "i" or subtasks.min() < -1:
        raise UserError(f"subtasks must be integers >= -1, got {subtasks.tolist()[:8]}")
    check_numbers(demonstration)
    if not demonstration.views:
        raise UserError("a demonstration must have a view")
    for name, view in demonstration.views.items():
        check_view(name, view, rows[0])


def check_numbers(demonstration: EncodedDemonstration) -> None:
    """Raise `UserError` for a number of a demonstration that is not finite or too small."""
    trust, variance = demonstration.skill
    numbers = {name: getattr(demonstration, name) for name in ("frame_rate", "move_threshold", "frame_weight")}
    for name, value in numbers.items():
        if not 0 <= value < math.inf or (name == "frame_rate" and value == 0):
            raise UserError(f"{name} must be {'>' if name == 'frame_rate' else '>='} 0, got {value}")
    if not (0 <= trust <= 1 and 0 < variance <= 1):
        raise UserError(f"skill must be a trust and a variance up to 1, got {trust} and {variance}")


def check_view(name: str, view: EncodedView, length: int) -> None:
    """Raise `UserError` unless a view has the shapes of its keyframes, and distances that can be scaled."""
    cells = tuple(view.coarse.shape)
    if len(cells) != 3 or view.changed.ndim != 2:
        raise UserError(f"coarse and changed of the view {name} must be [R, cells, C] and [R, D]")
    check_tensor(f"coarse of {name}", view.coarse, (length, *cells[1:]))
    check_tensor(f"scene of {name}", view.scene, (length, *cells[1:]))
    check_tensor(f"changed of {name}", view.changed, (length, view.changed.shape[1]))
    for label, value in {"motion": view.motion, **{f"scales[{i}]": v for i, v in enumerate(view.scales)}}.items():
        check_tensor(f"{label} of {name}", value, (), 0.0)
        if float(value) == 0:
            raise UserError(f"{label} of {name} must be > 0")
    for level, weights in enumerate(view.cell_weights):
        check_tensor(f"weights.{level} of {name}", weights, tuple(weights.shape), 0.0)
    if not 0 <= view.scene_threshold < math.inf:
        raise UserError(f"scene_threshold of {name} must be >= 0, got {view.scene_threshold}")


def check_tensor(
    name: str, tensor: Tensor, shape: tuple[int, ...], low: float = -math.inf, high: float = math.inf
) -> None:
    """Raise `UserError` unless a tensor is float32, of a shape, and its values are within bounds."""
    if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
        raise UserError(f"{name} must be float32 {list(shape)}, got {tensor.dtype} {list(tensor.shape)}")
    if tensor.numel() and not (low <= float(tensor.min()) and float(tensor.max()) <= high):
        raise UserError(
            f"{name} must be in [{low:g}, {high:g}], got {float(tensor.min()):g} to {float(tensor.max()):g}"
        )
