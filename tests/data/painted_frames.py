"""Images with a painted frame number, and damage to files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from embodied_rm.types import Episode, Frames, IntArray, Subtask

BITS = 12
H, W = 48, 64


def paint_frames(numbers: IntArray | range, height: int = H, width: int = W) -> Frames:
    """uint8 [T, H, W, 3]: a smooth image whose top rows encode the number's bits as dark and bright blocks."""
    yy, xx = np.mgrid[:height, :width]
    smooth = np.stack([40 + 2 * xx, 60 + 2 * yy, 30 + xx + yy], -1).clip(0, 255).astype(np.uint8)
    frames = np.repeat(smooth[None], len(numbers), 0)
    block, rows = width // BITS, height // 4
    for frame, number in zip(frames, numbers, strict=True):
        for bit in range(BITS):
            frame[:rows, bit * block : (bit + 1) * block] = 200 if number >> bit & 1 else 50
    return frames


def read_numbers(frames: Frames) -> list[int]:
    """Decode the numbers painted into [T, H, W, 3]."""
    block, rows = frames.shape[2] // BITS, frames.shape[1] // 4
    strips = frames[:, : rows - 1, : block * BITS].astype(np.float64)
    bright = strips.reshape(len(frames), rows - 1, BITS, block, 3).mean((1, 3, 4)) > 125
    return [int(sum(1 << bit for bit in range(BITS) if row[bit])) for row in bright]


def psnr(a: Frames, b: Frames) -> float:
    """Peak signal-to-noise ratio, dB."""
    return float(10 * np.log10(255**2 / np.mean((a.astype(np.float64) - b) ** 2)))


def make_episode(
    index: int, length: int = 20, views: tuple[str, ...] = ("front", "wrist"), fps: float = 10.0
) -> Episode:
    """An episode with painted numbers 100 * index + t and distinct columns."""
    rng = np.random.default_rng(index)
    middle = length // 2
    return Episode(
        name=f"trial_{index}",
        views={view: paint_frames(range(100 * index, 100 * index + length)) for view in views},
        instruction=f"do thing {index % 2}",
        fps=fps,
        subtasks=(Subtask(name="reach", start=1, end=middle), Subtask(name="lift", start=middle, end=length)),
        success=(True, False, None)[index % 3],
        progress=np.linspace(0, 1, length, dtype=np.float32),
        state=rng.normal(size=(length, 5)).astype(np.float32),
        action=rng.normal(size=(length, 3)).astype(np.float32),
        metadata={"task": "lift", "outcome": "drop"} if index % 2 else {"task": "lift"},
    )


def truncate(path: Path, size: int) -> None:
    """Keep the first `size` bytes."""
    path.write_bytes(path.read_bytes()[:size])


def replace_by_lfs_pointer(path: Path) -> None:
    """Replace a file by its git-lfs pointer."""
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n")
