"""Invalid and oversized images are rejected with the documented status before decoding."""

from __future__ import annotations

import io
import zlib
from typing import Any

import pytest
from PIL import Image
from png_files import build_png
from strict import VALID_HEADER, post


def png_with_size(width: int, height: int) -> bytes:
    """Return a PNG file of a few hundred bytes that declares this size."""
    return build_png(width, height, (b"IDAT", zlib.compress(bytes(999))))


def encode_image(image_format: str, size: tuple[int, int] = (8, 8), mode: str = "RGB", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 1 if mode in ("L", "P", "I;16") else (1, 2, 3)).save(file, image_format, **options)
    return file.getvalue()


JPEG, PNG = encode_image("JPEG"), encode_image("PNG")


@pytest.mark.parametrize(
    ("image", "status"),
    [
        (png_with_size(12_000, 12_000), 413),
        (png_with_size(40_000, 40_000), 422),
        (png_with_size(65, 8), 413),
        (png_with_size(0, 8), 422),
        (png_with_size(64, 64), 422),
        (JPEG[:20], 422),
        (JPEG[: len(JPEG) // 2], 422),
        (PNG[:45], 422),
        (PNG[:33] + bytes(40), 422),
        (encode_image("GIF"), 422),
        (encode_image("BMP"), 422),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422),
        (b"\x89PNG\r\n\x1a\n", 422),
        (b"\xff\xd8\xff", 422),
        (b"\x80\x04\x95canary", 422),
        (encode_image("PNG", (9, 8)), 422),
    ],
)
def test_invalid_image_is_rejected(url: str, image: bytes, status: int) -> None:
    files = [PNG, PNG, PNG, image]
    header = {**VALID_HEADER, "frames": {"shape": [2, 2], "image_bytes": [len(file) for file in files]}}
    response = post(url, header, b"".join(files))
    assert response.status_code == status and "frames" in response.json()["error"], response.text


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_other_color_modes_are_converted_to_rgb(url: str, mode: str) -> None:
    image = encode_image("JPEG" if mode == "CMYK" else "PNG", mode="L" if mode == "L" else "RGB")
    if mode in ("RGBA", "P"):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (1, 2, 3)).convert(mode).save(file, "PNG")
        image = file.getvalue()
    header = {**VALID_HEADER, "client_id": mode, "frames": {"shape": [2, 2], "image_bytes": [len(image)] * 4}}
    assert post(url, header, image * 4).status_code == 200
