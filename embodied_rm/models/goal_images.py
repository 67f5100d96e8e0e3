"""Goal images from files, each named after its view (front.png)."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from embodied_rm.errors import DataError, unknown_name_message
from embodied_rm.text_file import read_limited
from embodied_rm.types import Views

MAX_IMAGE_BYTES = 1 << 28  # of an image of 8K that is not compressed
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # others of Pillow start programs, or are no photographs
COLOR_MODES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr"))
"""Modes of Pillow whose pixels are colors. These and `FORMATS` are those of images in datasets."""
JPEG_START, JPEG_SCAN = b"\xff\xd8\xff", b"\xff\xda"
MAX_PIXELS = 8192 * 4320  # of an image, as in datasets
MAX_SCANS = 100  # as in the reward service: each passes over all pixels, and takes 12 bytes of the file


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
    encoded = read_image_file(path)
    try:
        return decode_image(encoded)
    except Exception as error:  # Pillow raises errors of any class for a crafted file
        is_unknown = isinstance(error, UnidentifiedImageError)
        reason = f"none of {', '.join(FORMATS)}" if is_unknown else str(error) or type(error).__name__
        raise DataError(f"{path}: not an image that can be read ({reason})") from None


def decode_image(encoded: bytes) -> np.ndarray:
    """Decode an image as viewers show it, uint8 [H, W, 3]; `DataError` for a depth map, or beyond the limits."""
    if encoded.startswith(JPEG_START) and encoded.count(JPEG_SCAN) > MAX_SCANS:
        raise DataError(f"it has more than {MAX_SCANS} scans")
    with Image.open(io.BytesIO(encoded), formats=FORMATS) as image:
        if not 0 < image.width * image.height <= MAX_PIXELS:
            raise DataError(f"it claims to be {image.width}x{image.height}")
        if image.mode not in COLOR_MODES:
            raise DataError(f"its pixels are {image.mode}, a depth map")
        return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def read_image_file(path: Path) -> bytes:
    """Return the content of an image file; `DataError` if it cannot be read, or is too large for one."""
    try:
        return read_limited(path, MAX_IMAGE_BYTES, "images")
    except OSError as error:
        raise DataError(f"{path}: not an image that can be read ({error.strerror})") from None
