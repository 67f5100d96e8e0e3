"""Decode the JPEG and PNG images of requests. Run by path; imports only Pillow and numpy.

A request is a line of JSON, {"image_bytes": [...], "max_image_side", "max_bytes"}, and the images. The reply is a line,
{"shape": [P, H, W, 3]} or {"error", "code"}. After a shape, each image is a line {} and its pixels, or an error.
"""

from __future__ import annotations

import io
import json
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

IMAGE_FORMATS = ("JPEG", "PNG")
MAGIC_BYTES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # First bytes of these formats. Other data never reach a decoder.
JPEG_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")
JPEG_SCAN = re.compile(rb"\xff\xda")
MAX_PARTS = 10_000  # segments or chunks per image; Pillow takes 10 us for each
MAX_SCANS = 100  # a scan of 12 bytes passes over all pixels; encoders write about 10
PNG_CHUNK_OVERHEAD_BYTES = 12  # length, type and checksum
DECODE_ERRORS = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, OverflowError, MemoryError)
"""Exceptions of a decoder for a damaged file."""

# `max_image_side` is far below Pillow's own limit and is checked before decoding.
warnings.simplefilter("ignore", Image.DecompressionBombWarning)


class ImageError(Exception):
    """An image that is rejected. `code`: name of the error code."""

    def __init__(self, message: str, code: str = "VALIDATION_ERROR") -> None:
        super().__init__(message)
        self.code = code


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Answer requests until the input ends."""
    for line in requests:
        request = json.loads(line)
        contents = [requests.read(length) for length in request["image_bytes"]]
        try:
            images = open_images(contents, request["max_image_side"], request["max_bytes"])
            send_line(replies, {"shape": [len(images), images[0].height, images[0].width, 3]})
            for pixels in decode(images):
                send_line(replies, {})
                replies.write(pixels.data)
        except ImageError as error:
            send_line(replies, {"error": f"frames: {error}", "code": error.code})
        replies.flush()


def send_line(replies: BinaryIO, value: dict[str, Any]) -> None:
    """Send one line of JSON."""
    replies.write(json.dumps(value).encode() + b"\n")


def open_images(contents: list[bytes], max_side: int, max_bytes: int) -> list[Image.Image]:
    """Read the headers of images. Raises `ImageError` unless they have one size, and not too many pixels in total."""
    images = [open_image(content, index, max_side) for index, content in enumerate(contents)]
    sizes = {image.size for image in images}
    if len(sizes) > 1:
        (width_a, height_a), (width_b, height_b), *_ = sorted(sizes)
        got = f"images of {height_a} x {width_a} and of {height_b} x {width_b}"
        raise ImageError(f"got {got}, expected one size for all images")
    num_bytes = 3 * sum(image.width * image.height for image in images)
    if num_bytes > max_bytes:
        raise ImageError(f"the images have {num_bytes} bytes of pixels, more than {max_bytes}", "PAYLOAD_TOO_LARGE")
    return images


def open_image(content: bytes, index: int, max_side: int) -> Image.Image:
    """Read the header of an image and check its format, size and parts."""
    if not content.startswith(MAGIC_BYTES):
        raise ImageError(f"image {index} is neither a JPEG nor a PNG file")
    num_parts, num_scans = (count_jpeg if content.startswith(MAGIC_BYTES[0]) else count_png)(content)
    if num_parts > MAX_PARTS or num_scans > MAX_SCANS:
        limits = f"{MAX_PARTS} segments or chunks, or {MAX_SCANS} scans"
        raise ImageError(f"image {index} has more than {limits}", "PAYLOAD_TOO_LARGE")
    try:
        image = Image.open(io.BytesIO(content), formats=IMAGE_FORMATS)
    except DECODE_ERRORS as error:
        raise ImageError(f"image {index} cannot be decoded: {error}") from None
    if max(image.size) > max_side:
        size = f"{image.height} x {image.width}, at most {max_side} per side"
        raise ImageError(f"image {index} is {size}", "PAYLOAD_TOO_LARGE")
    return image


def count_jpeg(content: bytes) -> tuple[int, int]:
    """Return at least the number of segments and of scans: bytes of metadata may look like one."""
    markers, scans = JPEG_MARKER.finditer(content), JPEG_SCAN.finditer(content)
    return sum(1 for _ in islice(markers, MAX_PARTS + 1)), sum(1 for _ in islice(scans, MAX_SCANS + 1))


def count_png(content: bytes) -> tuple[int, int]:
    """Return the number of chunks, up to one more than permitted, and 0 scans."""
    offset, num_chunks = len(MAGIC_BYTES[1]), 0
    while offset < len(content) and num_chunks <= MAX_PARTS:
        offset += PNG_CHUNK_OVERHEAD_BYTES + int.from_bytes(content[offset : offset + 4], "big")
        num_chunks += 1
    return num_chunks, 0


def decode(images: list[Image.Image]) -> Iterator[np.ndarray]:
    """Yield the pixels of each image, uint8 [H, W, 3]."""
    for index, image in enumerate(images):
        try:
            yield np.ascontiguousarray(image.convert("RGB"))
        except DECODE_ERRORS as error:
            raise ImageError(f"image {index} cannot be decoded: {error}") from None


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
