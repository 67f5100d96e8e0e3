"""Episodes as one small mp4: all views side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from embodied_rm.data.video.files import VideoWriter
from embodied_rm.types import Episode, Frames

HEIGHT = 192
"""Pixels; smaller pictures are enlarged, so that H.264's half-resolution colour does not blur them."""
GAP = 4
"""Pixels of background between two views."""
QUANTIZER = 26


def encode_clip(episode: Episode) -> bytes:
    """The episode's views side by side as an H.264 mp4, `HEIGHT` pixels high, one video frame a frame."""
    views = [_resized(frames) for frames in episode.views.values()]
    pictures = side_by_side(views)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        writer = VideoWriter(path, episode.fps, (pictures.shape[1], pictures.shape[2]), quantizer=QUANTIZER)
        writer.add(pictures)
        writer.close()
        return path.read_bytes()


def side_by_side(views: list[Frames]) -> Frames:
    """uint8 [T, H, W_v, 3] of equal height in one row, `GAP` black pixels apart; uint8 [T, H, W, 3]."""
    gap = np.zeros((*views[0].shape[:2], GAP, 3), np.uint8)
    parts = [part for view in views for part in (gap, view)]
    return np.concatenate(parts[1:], axis=2)


def grid(rows: Sequence[Sequence[Frames]]) -> Frames:
    """One video of many: each row's films uint8 [T_r, H, W, 3] side by side, the rows below each other.

    A row that is shorter than the longest stands still at its end.
    """
    longest = max(len(film) for row in rows for film in row)
    held = [[film[np.minimum(np.arange(longest), len(film) - 1)] for film in row] for row in rows]
    # Below each other is side by side for whoever looks at it with height and width exchanged.
    return side_by_side([side_by_side(row).swapaxes(1, 2) for row in held]).swapaxes(1, 2)


def _resized(frames: Frames) -> Frames:
    height, width = frames.shape[1:3]
    size = (2 * round(width * HEIGHT / height / 2), HEIGHT)
    if size == (width, height):
        return frames
    return np.stack([np.asarray(Image.fromarray(f).resize(size, Image.Resampling.BICUBIC)) for f in frames])
