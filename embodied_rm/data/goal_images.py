"""Read goal images (the scene after success) from files, one image per view."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from embodied_rm.errors import DataError, unknown_name_message
from embodied_rm.types import Episode


def read_goal_episode(paths: Sequence[Path], views: Sequence[str]) -> Episode:
    """Read image files, each named after its view (front.png), as an episode of one frame."""
    frames = {path.stem: _read_image(path, views) for path in paths}
    sizes = {frame.shape[1:3] for frame in frames.values()}
    if len(frames) != len(paths) or len(sizes) != 1:
        raise DataError(f"goal images must be one per view and of equal size, got {', '.join(map(str, paths))}")
    return Episode(name="goal", views=frames, instruction="", fps=1.0)


def _read_image(path: Path, views: Sequence[str]) -> np.ndarray:
    if path.stem not in views:
        message = unknown_name_message(path.stem, views, "view")
        raise DataError(f"{path}: {message}; a goal image is named after its view")
    try:
        return np.asarray(Image.open(path).convert("RGB"))[None]
    except (OSError, UnidentifiedImageError) as error:
        raise DataError(f"{path}: not an image that can be read ({error})") from None
