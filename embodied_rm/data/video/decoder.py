"""Probe and decode videos in a child process."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embodied_rm.data.names import is_frame_rate
from embodied_rm.data.subprocess_worker import SubprocessWorker
from embodied_rm.data.video.containers import check_video
from embodied_rm.errors import DataError
from embodied_rm.types import Frames

FrameTimes = npt.NDArray[np.float64]


MAX_TIME_DEVIATION_S = 0.25  # deviation of a frame from even times up to which a video counts as evenly spaced, s


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """Properties of a video file."""

    timestamps: FrameTimes  # float64 [T], s: presentation time of each frame, strictly increasing
    fps: float
    height: int  # of the frames as players show them, pixels
    width: int

    def __len__(self) -> int:
        return len(self.timestamps)

    def describe_gap(self) -> str | None:
        """Return a clause about frames that are spaced unevenly, as after a pause: readers count frames, not seconds.

        None: they are spaced evenly.
        """
        times = self.timestamps
        if len(times) < 3:
            return None
        gaps = np.diff(times)
        deviations = times - np.linspace(times[0], times[-1], len(times))
        if np.abs(deviations).max() <= max(MAX_TIME_DEVIATION_S, mean_s := float(gaps.mean())):
            return None
        distances = f"{gaps.max():.3g} s apart at frame {gaps.argmax() + 1}, {mean_s:.3g} s on average"
        return f"its frames are spaced unevenly ({distances}), and are read as evenly spaced"


class VideoDecoder(SubprocessWorker):
    """Probes and reads videos in a child process. Damaged and missing files raise `DataError`."""

    script = Path(__file__).parents[1] / "workers" / "decode.py"
    description = "video decoder"

    def __init__(self) -> None:
        super().__init__()
        self._last_probe: tuple[tuple[object, ...], VideoInfo] | None = None
        """Version and properties of a file; the episodes of a dataset share long files."""

    def probe(self, path: Path) -> VideoInfo:
        """Count the stored frames, and decode the first and the last one."""
        container, status = check_video(path), path.stat()
        version = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if self._last_probe is None or self._last_probe[0] != version:
            _, reply = self.request(path, "probe", format=container)
            if not is_frame_rate(reply["fps"]):
                raise DataError(f"{path}: it has {reply['fps']:g} frames per second")
            fields = {name: reply[name] for name in ("fps", "height", "width")}
            self._last_probe = version, VideoInfo(timestamps=np.array(reply["pts"], np.float64), **fields)
        return self._last_probe[1]

    def read(self, path: Path, timestamps: npt.ArrayLike, fps: float, size: tuple[int, int] | None = None) -> Frames:
        """Read the frames within half a frame of some times [T] (s, any order), as uint8 [T, H, W, 3].

        With a size (height, width) they are resized while decoding, so that full-size frames are never stored.
        """
        requested = np.asarray(timestamps, np.float64)
        if len(requested) == 0 or not np.isfinite(requested).all():
            raise DataError(f"{path}: one time or more was expected, all finite, got {requested.tolist()}")
        if size is not None and not min(size) >= 1:
            raise DataError(f"{path}: size must be (height, width), both >= 1, got {size}")
        container = check_video(path)
        order = np.argsort(requested, kind="stable")
        fields = {"timestamps": requested[order].tolist(), "tolerance": 0.5 / fps, "size": size}
        frames, _ = self.request(path, "read", expect_array=True, format=container, **fields)
        assert frames is not None and len(frames) == len(requested)
        if np.array_equal(order, np.arange(len(order))):
            return frames
        return frames[np.argsort(order, kind="stable")]
