"""Copies of a video that show the same with another crop and other colors, all frames alike."""

from __future__ import annotations

import numpy as np

from embodied_rm.types import Frames

MIN_ASPECT = 0.9  # smallest width of a crop, fraction of the width that keeps the aspect ratio
GAMMA_RANGE, CHANNEL_GAIN_RANGE = (0.7, 1.4), (0.85, 1.15)


def augment_video(frames: Frames, min_crop: float, rng: np.random.Generator) -> Frames:
    """Crop and recolor a video uint8 [T, H, W, 3].

    Args:
        frames: The video.
        min_crop: Smallest crop, fraction of both sides, in (0, 1].
        rng: Draws the crop, the gamma and the gains of the channels.
    """
    height, width = frames.shape[1:3]
    scale = rng.uniform(min_crop, 1)
    h, w = int(height * scale), int(width * scale * rng.uniform(MIN_ASPECT, 1))
    y, x = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
    cropped = frames[:, y : y + h, x : x + w]
    gamma, gains = rng.uniform(*GAMMA_RANGE), rng.uniform(*CHANNEL_GAIN_RANGE, 3)
    levels = (np.arange(256) / 255) ** gamma
    table = np.round(255 * np.clip(levels[:, None] * gains, 0, 1)).astype(np.uint8)
    return np.stack([table[:, c][cropped[..., c]] for c in range(3)], axis=-1)
