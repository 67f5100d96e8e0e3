"""Decodes JPEG and PNG images of a request, after checking format and size from their headers."""

import io
import warnings
from collections.abc import Sequence

import numpy as np
from PIL import Image

from embodied_rm.serve.protocol import FramePayload
from embodied_rm.serve.request_errors import ErrorCode, RequestError, validation_error
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import Frames, Views

IMAGE_FORMATS = ("JPEG", "PNG")
MAGIC_BYTES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # First bytes of these formats. Other data never reach a decoder.
DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, OverflowError, MemoryError)
"""Exceptions of a decoder for a damaged file."""

# `max_image_side` is far below Pillow's own limit and is checked before decoding.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)


def decode_views(payload: FramePayload, limits: ServeLimits) -> Views:
    """Decode the frames of a request; raw pixels are not copied. Raises `RequestError` for unsuitable images."""
    if payload.images is None:
        num_rows, num_views, *size = payload.shape
        shape = (num_views, num_rows, *size) if payload.view_major else payload.shape
        frames = np.frombuffer(payload.raw, np.uint8).reshape(shape)
        frames = frames.swapaxes(0, 1) if payload.view_major else frames
    else:
        images = decode_images(payload.images, limits)
        frames = images.reshape(*payload.shape, *images.shape[1:])
    return Views(names=payload.view_names, frames=frames)


def decode_images(contents: Sequence[memoryview], limits: ServeLimits) -> Frames:
    """Decode P images of equal size. Returns uint8 [P, H, W, 3]."""
    images = [open_image(content, index, limits) for index, content in enumerate(contents)]
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        (width_a, height_a), (width_b, height_b), *_ = sorted(sizes)
        got = f"images of {height_a} x {width_a} and of {height_b} x {width_b}"
        raise validation_error("frames", got, "one size for all images")
    ((width, height),) = sizes
    frames = np.empty((len(images), height, width, 3), np.uint8)
    for index, image in enumerate(images):
        try:
            frames[index] = np.asarray(image.convert("RGB"))
        except DECODE_ERRORS as error:
            raise decode_error(index, error) from None
    return frames


def open_image(content: memoryview, index: int, limits: ServeLimits) -> Image.Image:
    """Read the header of an image and check its format and size."""
    if not bytes(content[:8]).startswith(MAGIC_BYTES):
        raise RequestError(ErrorCode.VALIDATION_ERROR, f"frames: image {index} is neither a JPEG nor a PNG file")
    try:
        image = Image.open(io.BytesIO(content), formats=IMAGE_FORMATS)
    except DECODE_ERRORS as error:
        raise decode_error(index, error) from None
    if max(image.size) > limits.max_image_side:
        size = f"{image.size[1]} x {image.size[0]}, at most {limits.max_image_side} per side"
        raise RequestError(ErrorCode.PAYLOAD_TOO_LARGE, f"frames: image {index} is {size}")
    return image


def decode_error(index: int, error: BaseException) -> RequestError:
    """Return the error for a damaged image."""
    return RequestError(ErrorCode.VALIDATION_ERROR, f"frames: image {index} cannot be decoded: {error}")
