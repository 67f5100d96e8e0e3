"""JPEG and PNG pictures of a request, decoded: their headers are believed last, and looked at first."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence

import numpy as np
from PIL import Image

from embodied_rm.serve.config import Limits
from embodied_rm.serve.protocol import Pixels, unfit
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.types import Frames, Views

FORMATS = ("JPEG", "PNG")
BEGINS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
"""How files of these formats begin: nothing else is shown to a decoder."""
BROKEN = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, OverflowError, MemoryError)
"""What a decoder raises for a damaged file."""

# Pictures over our own limit, far below the one that this is about, are refused before they are decoded.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def views_of(pixels: Pixels, limits: Limits) -> Views:
    """The frames of a request as views; raw ones are not copied.

    Raises `RefusalError` for a file that is no such picture, is too large, or of another size than the others.
    """
    if pixels.pictures is None:
        rows, views, *size = pixels.shape
        if pixels.by_view:
            frames = np.frombuffer(pixels.raw, np.uint8).reshape(views, rows, *size).swapaxes(0, 1)
        else:
            frames = np.frombuffer(pixels.raw, np.uint8).reshape(pixels.shape)
        return Views(names=pixels.names, frames=frames)
    rows, views = pixels.shape
    decoded = decode(pixels.pictures, limits)
    return Views(names=pixels.names, frames=decoded.reshape(rows, views, *decoded.shape[1:]))


def decode(pictures: Sequence[memoryview], limits: Limits) -> Frames:
    """uint8 [P, H, W, 3] of P pictures of one size."""
    opened = [open_picture(picture, number, limits) for number, picture in enumerate(pictures)]
    sizes = {image.size for image in opened}
    if len(sizes) > 1:
        (w, h), (x, y), *_ = sorted(sizes)
        raise unfit("frames", f"pictures of {h} x {w} and of {y} x {x}", "one size for all of a request")
    ((width, height),) = sizes
    frames = np.empty((len(opened), height, width, 3), np.uint8)
    for number, image in enumerate(opened):
        try:
            frames[number] = np.asarray(image.convert("RGB"))
        except BROKEN as fault:
            raise no_picture(number, fault) from None
    return frames


def open_picture(content: memoryview, number: int, limits: Limits) -> Image.Image:
    """A picture whose header has been read, and is within limits."""
    if not bytes(content[:8]).startswith(BEGINS):
        raise RefusalError(Why.DOES_NOT_FIT, f"frames: picture {number} is neither a JPEG nor a PNG file")
    try:
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    except BROKEN as fault:
        raise no_picture(number, fault) from None
    if max(image.size) > limits.side:
        raise RefusalError(
            Why.TOO_LARGE,
            f"frames: picture {number} is {image.size[1]} x {image.size[0]}, at most {limits.side} a side",
        )
    return image


def no_picture(number: int, fault: BaseException) -> RefusalError:
    """For a damaged file."""
    return RefusalError(Why.DOES_NOT_FIT, f"frames: picture {number} cannot be decoded: {fault}")
