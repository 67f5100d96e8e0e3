"""Goal images from files, each named after its view (front.png)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from embodied_rm.errors import DataError, unknown_name_message
from embodied_rm.types import Views


def read_goal_images(paths: Sequence[Path], views: Sequence[str] | None = None) -> Views:
    """Read the goal images of one episode.

    Args:
        paths: At least one image file, each named after its view.
        views: The names that a view may have. None: any.

    Returns:
        One row, uint8 [1, V, H, W, 3].

    Raises:
        DataError: If a file cannot be read, has the name of no view, or differs from another in size.
    """
    frames = {path.stem: _read_image(path, views) for path in paths}
    if len(frames) != len(paths) or len({frame.shape for frame in frames.values()}) != 1:
        raise DataError(f"goal images must be one per view and of equal size, got {', '.join(map(str, paths))}")
    return Views(names=tuple(frames), frames=np.stack(list(frames.values()))[None])


def _read_image(path: Path, views: Sequence[str] | None) -> np.ndarray:
    if views is not None and path.stem not in views:
        message = unknown_name_message(path.stem, views, "view")
        raise DataError(f"{path}: {message}; a goal image is named after its view")
    try:
        return np.asarray(Image.open(path).convert("RGB"))
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: not an image that can be read ({error})") from None
