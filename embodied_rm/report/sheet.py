"""A sheet of pictures as one png: a row for each thing shown, its caption above, a column for each view."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from embodied_rm.report.clip import GAP
from embodied_rm.types import Frames

LINE = 28
"""Height of a line of text, pixels."""
TEXT, PAPER = (30, 30, 30), (255, 255, 255)


@dataclass(frozen=True, kw_only=True)
class SheetRow:
    """One thing, seen from several sides."""

    caption: str
    views: Mapping[str, Frames]
    """Name of the view -> uint8 [H, W, 3], all of one size and the same in every row."""


def draw_sheet(rows: Sequence[SheetRow]) -> bytes:
    """The rows as a png, with the names of the views at the top."""
    first = next(iter(rows[0].views.values()))
    height, width = first.shape[0] + GAP, first.shape[1] + GAP
    size = (GAP + width * len(rows[0].views), LINE + (LINE + height) * len(rows))
    sheet = Image.new("RGB", size, PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=LINE // 2)
    for column, name in enumerate(rows[0].views):
        pen.text((GAP + column * width, LINE // 4), name, TEXT, font)
    for number, row in enumerate(rows):
        top = LINE + number * (LINE + height)
        pen.text((GAP, top + LINE // 4), row.caption, TEXT, font)
        for column, picture in enumerate(row.views.values()):
            sheet.paste(Image.fromarray(np.ascontiguousarray(picture)), (GAP + column * width, top + LINE))
    buffer = io.BytesIO()
    sheet.save(buffer, "png")
    return buffer.getvalue()
