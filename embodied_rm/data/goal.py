"""Goal pictures from files: how the task looks when done, one picture a view."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from embodied_rm.errors import DataError, choices
from embodied_rm.types import Episode


def read_goal(pictures: Sequence[Path], views: Sequence[str]) -> Episode:
    """An episode of one frame. Each file is named after the view that it shows, e.g. front.png.

    Raises `DataError` naming the file that cannot be read, is no view, or differs in size from the others.
    """
    frames = {picture.stem: _read(picture, views) for picture in pictures}
    sizes = {frame.shape[1:3] for frame in frames.values()}
    if len(frames) != len(pictures) or len(sizes) != 1:
        raise DataError(f"goal pictures must be one a view and of one size, got {', '.join(map(str, pictures))}")
    return Episode(name="goal", views=frames, instruction="", fps=1.0)


def _read(picture: Path, views: Sequence[str]) -> np.ndarray:
    if picture.stem not in views:
        raise DataError(f"{picture}: {choices(picture.stem, views, 'view')}; a goal picture is named after its view")
    try:
        return np.asarray(Image.open(picture).convert("RGB"))[None]
    except (OSError, UnidentifiedImageError) as fault:
        raise DataError(f"{picture}: not a picture that can be read ({fault})") from None
