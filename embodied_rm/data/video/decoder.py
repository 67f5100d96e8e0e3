"""Probes and decodes mp4 files, in a child process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embodied_rm.data.child import Child
from embodied_rm.data.video.mp4 import check_mp4
from embodied_rm.errors import DataError
from embodied_rm.types import Frames

Times = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """What a video file holds."""

    times: Times
    """float64 [T], s: when each frame is shown; strictly rising."""
    fps: float
    height: int
    width: int

    def __len__(self) -> int:
        return len(self.times)


class Decoder(Child):
    """Probes and reads mp4 files in a child process."""

    worker = Path(__file__).parents[1] / "workers" / "decode.py"
    what = "video decoder"

    def probe(self, path: Path) -> VideoInfo:
        """Count the frames that are really there, and decode the first and the last.

        Raises `DataError` when the file is missing, a git-lfs pointer, not an mp4, cut short or not decodable.
        """
        check_mp4(path)
        _, told = self.ask(path, "probe")
        times = np.array(told["pts"], np.float64)
        return VideoInfo(times=times, fps=told["fps"], height=told["height"], width=told["width"])

    def read(self, path: Path, times: npt.ArrayLike, fps: float, size: tuple[int, int] | None = None) -> Frames:
        """The frames shown at `times` (s, in any order, each met within 0.5/fps): uint8 [T, H, W, 3].

        `size` (height, width) shrinks while decoding, so full-size frames are never held.
        Raises `DataError` when a frame is missing or cannot be decoded.
        """
        wanted = np.asarray(times, np.float64)
        if len(wanted) == 0 or not np.isfinite(wanted).all():
            raise DataError(f"{path}: one time or more was expected, all finite, got {wanted.tolist()}")
        if size is not None and not min(size) >= 1:
            raise DataError(f"{path}: size must be (height, width), both >= 1, got {size}")
        check_mp4(path)
        order = np.argsort(wanted, kind="stable")
        asked = {"timestamps": wanted[order].tolist(), "tolerance": 0.5 / fps, "size": size}
        frames, _ = self.ask(path, "read", numbers=True, **asked)
        assert frames is not None and len(frames) == len(wanted)
        if np.array_equal(order, np.arange(len(order))):
            return frames
        return frames[np.argsort(order, kind="stable")]
