"""How stored images are turned, for cameras that were mounted otherwise and recorders that store rows from below."""

from collections.abc import Callable, Mapping

import numpy as np

from embodied_rm.errors import DataError, UserError, lookup, unknown_name_message
from embodied_rm.types import Frames

STORED = "stored"
ORIENTATIONS: Mapping[str, Callable[[Frames], Frames]] = {
    STORED: lambda frames: frames,
    "flip": lambda frames: frames[..., ::-1, :, :],
    "mirror": lambda frames: frames[..., ::-1, :],
    "rotate_90": lambda frames: np.rot90(frames, -1, axes=(-3, -2)),
    "rotate_180": lambda frames: frames[..., ::-1, ::-1, :],
    "rotate_270": lambda frames: np.rot90(frames, 1, axes=(-3, -2)),
}
"""Name -> images [..., H, W, 3] as they are turned: top and bottom, left and right, or clockwise by degrees."""
SWAPS_AXES = ("rotate_90", "rotate_270")


def check_orientations(orientations: Mapping[str, str]) -> None:
    """Raise `UserError` for an unknown orientation of a view."""
    for view, name in orientations.items():
        if not isinstance(name, str):
            raise UserError(f"the orientation of {view} must be one of {', '.join(ORIENTATIONS)}, got {name!r}")
        lookup(ORIENTATIONS, name, f"orientation of {view}")


def check_views(orientations: Mapping[str, str], views: tuple[str, ...], source: object) -> None:
    """Raise `DataError` for the orientation of a view that a dataset does not have."""
    for view in orientations:
        if view not in views:
            raise DataError(f"{source}: {unknown_name_message(view, views, 'view')}")


def turn(frames: Frames, orientation: str) -> Frames:
    """Return images uint8 [..., H, W, 3] in an orientation, contiguous."""
    return np.ascontiguousarray(ORIENTATIONS[orientation](frames))


def stored_size(size: tuple[int, int] | None, orientation: str) -> tuple[int, int] | None:
    """Return the height and width of stored images that have a size after they are turned."""
    return size[::-1] if size is not None and orientation in SWAPS_AXES else size
