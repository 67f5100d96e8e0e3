"""Episodes as one small mp4: all views side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from embodied_rm.data.video.files import VideoWriter
from embodied_rm.types import Episode, Frames

CLIP_HEIGHT_PX = 192
"""Pixels; smaller images are enlarged, so that H.264's half-resolution color does not blur them."""
GAP_PX = 4
"""Pixels of background between two views."""
H264_QUANTIZER = 26


def encode_episode(episode: Episode) -> bytes:
    """The episode's views side by side as an H.264 mp4, `HEIGHT` pixels high, one video frame a frame."""
    views = [_resize(frames) for frames in episode.views.values()]
    mosaic = concat_horizontal(views)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        writer = VideoWriter(path, episode.fps, (mosaic.shape[1], mosaic.shape[2]), qp=H264_QUANTIZER)
        writer.add(mosaic)
        writer.close()
        return path.read_bytes()


def concat_horizontal(views: list[Frames]) -> Frames:
    """uint8 [T, H, W_v, 3] of equal height in one row, `GAP` black pixels apart; uint8 [T, H, W, 3]."""
    gap = np.zeros((*views[0].shape[:2], GAP_PX, 3), np.uint8)
    blocks = [block for view in views for block in (gap, view)]
    return np.concatenate(blocks[1:], axis=2)


def make_grid(rows: Sequence[Sequence[Frames]]) -> Frames:
    """One video of many: each row's videos uint8 [T_r, H, W, 3] side by side, the rows below each other.

    A row that is shorter than the longest stands still at its end.
    """
    num_frames = max(len(clip) for row in rows for clip in row)
    padded_rows = [[clip[np.minimum(np.arange(num_frames), len(clip) - 1)] for clip in row] for row in rows]
    # Below each other is side by side for whoever looks at it with height and width exchanged.
    return concat_horizontal([concat_horizontal(row).swapaxes(1, 2) for row in padded_rows]).swapaxes(1, 2)


def _resize(frames: Frames) -> Frames:
    height, width = frames.shape[1:3]
    size = (2 * round(width * CLIP_HEIGHT_PX / height / 2), CLIP_HEIGHT_PX)
    if size == (width, height):
        return frames
    return np.stack([np.asarray(Image.fromarray(frame).resize(size, Image.Resampling.BICUBIC)) for frame in frames])
