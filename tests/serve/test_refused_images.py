"""An image that is none, or too large, is refused by the documented status before it is decoded."""

from __future__ import annotations

import io
import zlib
from typing import Any

import pytest
from PIL import Image
from png_files import build_png
from strict import GOOD, post


def png(width: int, height: int) -> bytes:
    """A PNG file that says it is that large, of a few hundred bytes."""
    return build_png(width, height, (b"IDAT", zlib.compress(bytes(999))))


def encoded(kind: str, size: tuple[int, int] = (8, 8), mode: str = "RGB", **how: Any) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 1 if mode in ("L", "P", "I;16") else (1, 2, 3)).save(file, kind, **how)
    return file.getvalue()


JPEG, PNG = encoded("JPEG"), encoded("PNG")


@pytest.mark.parametrize(
    ("image", "status"),
    [
        (png(12_000, 12_000), 413),
        (png(40_000, 40_000), 422),
        (png(65, 8), 413),
        (png(0, 8), 422),
        (png(64, 64), 422),
        (JPEG[:20], 422),
        (JPEG[: len(JPEG) // 2], 422),
        (PNG[:45], 422),
        (PNG[:33] + bytes(40), 422),
        (encoded("GIF"), 422),
        (encoded("BMP"), 422),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422),
        (b"\x89PNG\r\n\x1a\n", 422),
        (b"\xff\xd8\xff", 422),
        (b"\x80\x04\x95canary", 422),
        (encoded("PNG", (9, 8)), 422),
    ],
)
def test_images_that_are_none_or_too_large_are_refused(url: str, image: bytes, status: int) -> None:
    files = [PNG, PNG, PNG, image]
    header = {**GOOD, "frames": {"shape": [2, 2], "image_bytes": [len(one) for one in files]}}
    refused = post(url, header, b"".join(files))
    assert refused.status_code == status and "frames" in refused.json()["error"], refused.text


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_images_of_other_colors_become_red_green_and_blue(url: str, mode: str) -> None:
    image = encoded("JPEG" if mode == "CMYK" else "PNG", mode="L" if mode == "L" else "RGB")
    if mode in ("RGBA", "P"):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (1, 2, 3)).convert(mode).save(file, "PNG")
        image = file.getvalue()
    header = {**GOOD, "client_id": mode, "frames": {"shape": [2, 2], "image_bytes": [len(image)] * 4}}
    assert post(url, header, image * 4).status_code == 200
