"""Frames of one mp4, for tests."""

from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.source import stride_indices
from embodied_rm.data.video.decoder import VideoDecoder
from embodied_rm.types import Frames


def read_frames(
    path: Path | str,
    timestamps: Sequence[float] | None = None,
    *,
    stride: int = 1,
    size: tuple[int, int] | None = None,
) -> Frames:
    """Read uint8 [T, H, W, 3]: the frames within half a frame of `timestamps` (s), or else by `stride`."""
    with VideoDecoder() as decoder:
        info = decoder.probe(Path(path))
        times = info.timestamps[stride_indices(len(info), stride)] if timestamps is None else timestamps
        return decoder.read(Path(path), times, info.fps, size)
