"""Images of episodes: a small mp4 with all views side by side, or a contact sheet with one captioned row per item."""

import io
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from embodied_rm.data.video.display_size import display_width
from embodied_rm.data.video.files import VideoWriter
from embodied_rm.types import Episode, Frames

CLIP_HEIGHT_PX = 192  # smaller images are enlarged, because H.264 stores color at half resolution
GAP_PX = 4  # gap between two views, in pixels
H264_QUANTIZER = 26
LINE_HEIGHT_PX = 28  # height of a line of text
TEXT_COLOR, BACKGROUND_COLOR = (30, 30, 30), (255, 255, 255)


def encode_episode(episode: Episode) -> bytes:
    """Encode the views side by side as an H.264 mp4 of height `CLIP_HEIGHT_PX`, one video frame per frame."""
    views = [resize_to_height(frames, CLIP_HEIGHT_PX) for frames in episode.views.values()]
    mosaic = concat_horizontal(views)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        writer = VideoWriter(path, episode.fps, (mosaic.shape[1], mosaic.shape[2]), qp=H264_QUANTIZER)
        writer.add(mosaic)
        writer.close()
        return path.read_bytes()


def concat_horizontal(views: list[Frames]) -> Frames:
    """Concatenate views uint8 [T, H, W_v, 3] horizontally, `GAP_PX` black pixels apart. Returns uint8 [T, H, W, 3]."""
    gap = np.zeros((*views[0].shape[:2], GAP_PX, 3), np.uint8)
    blocks = [block for view in views for block in (gap, view)]
    return np.concatenate(blocks[1:], axis=2)


def make_grid(rows: Sequence[Sequence[Frames]]) -> Frames:
    """Arrange clips uint8 [T_r, H, W, 3] in a grid, `rows[i][j]` in row i and column j.

    Shorter clips repeat their last frame.
    """
    num_frames = max(len(clip) for row in rows for clip in row)
    padded_rows = [[clip[np.minimum(np.arange(num_frames), len(clip) - 1)] for clip in row] for row in rows]
    # Vertical concatenation is horizontal concatenation of the transposed frames.
    return concat_horizontal([concat_horizontal(row).swapaxes(1, 2) for row in padded_rows]).swapaxes(1, 2)


def resize_to_height(frames: Frames, height: int) -> Frames:
    """Resize uint8 [T, H, W, 3] to a height, and to its `display_width`."""
    size = (display_width((frames.shape[1], frames.shape[2]), height), height)
    if size == (frames.shape[2], frames.shape[1]):
        return frames
    return np.stack([np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC)) for frame in frames])


@dataclass(frozen=True, kw_only=True)
class ContactSheetRow:
    """Images of one item from several views."""

    caption: str
    views: Mapping[str, Frames]  # view -> uint8 [H, W, 3], the same views in every row


def draw_contact_sheet(rows: Sequence[ContactSheetRow]) -> bytes:
    """Draw the rows as a png, with the view names at the top. A column is as wide as its widest image."""
    names, font = list(rows[0].views), ImageFont.load_default(size=LINE_HEIGHT_PX // 2)
    widths = [max(row.views[name].shape[1] for row in rows) + GAP_PX for name in names]
    lefts = np.cumsum([GAP_PX, *widths]).tolist()
    heights = [LINE_HEIGHT_PX + GAP_PX + max(image.shape[0] for image in row.views.values()) for row in rows]
    tops = np.cumsum([LINE_HEIGHT_PX, *heights]).tolist()
    sheet = Image.new("RGB", (lefts[-1], tops[-1]), BACKGROUND_COLOR)
    draw = ImageDraw.Draw(sheet)
    for name, left, width in zip(names, lefts, widths, strict=False):
        draw.text((left, LINE_HEIGHT_PX // 4), _end_of_text(name, width - GAP_PX, font), TEXT_COLOR, font)
    for row, top in zip(rows, tops, strict=False):
        draw.text((GAP_PX, top + LINE_HEIGHT_PX // 4), row.caption, TEXT_COLOR, font)
        for name, left in zip(names, lefts, strict=False):
            sheet.paste(Image.fromarray(np.ascontiguousarray(row.views[name])), (left, top + LINE_HEIGHT_PX))
    buffer = io.BytesIO()
    sheet.save(buffer, "png")
    return buffer.getvalue()


def _end_of_text(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Return the end of a text that fits into a width in pixels: view names differ there."""
    while len(text) > 1 and font.getlength(text) > width:
        text = text[1:]
    return text
