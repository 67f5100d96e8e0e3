"""Contact sheets: images as one png, one captioned row per item and one column per view."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from embodied_rm.report.episode_video import GAP_PX
from embodied_rm.types import Frames

LINE_HEIGHT_PX = 28  # height of a line of text
TEXT_COLOR, BACKGROUND_COLOR = (30, 30, 30), (255, 255, 255)


@dataclass(frozen=True, kw_only=True)
class ContactSheetRow:
    """Images of one item from several views."""

    caption: str
    views: Mapping[str, Frames]  # view -> uint8 [H, W, 3], of one size, the same views in every row


def draw_contact_sheet(rows: Sequence[ContactSheetRow]) -> bytes:
    """Draw the rows as a png, with the view names at the top."""
    first_image = next(iter(rows[0].views.values()))
    height, width = first_image.shape[0] + GAP_PX, first_image.shape[1] + GAP_PX
    size = (GAP_PX + width * len(rows[0].views), LINE_HEIGHT_PX + (LINE_HEIGHT_PX + height) * len(rows))
    sheet = Image.new("RGB", size, BACKGROUND_COLOR)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=LINE_HEIGHT_PX // 2)
    for column, name in enumerate(rows[0].views):
        draw.text((GAP_PX + column * width, LINE_HEIGHT_PX // 4), name, TEXT_COLOR, font)
    for index, row in enumerate(rows):
        top = LINE_HEIGHT_PX + index * (LINE_HEIGHT_PX + height)
        draw.text((GAP_PX, top + LINE_HEIGHT_PX // 4), row.caption, TEXT_COLOR, font)
        for column, image in enumerate(row.views.values()):
            sheet.paste(Image.fromarray(np.ascontiguousarray(image)), (GAP_PX + column * width, top + LINE_HEIGHT_PX))
    buffer = io.BytesIO()
    sheet.save(buffer, "png")
    return buffer.getvalue()
