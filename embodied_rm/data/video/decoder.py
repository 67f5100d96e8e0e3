"""Probe and decode mp4 files in a child process."""

import shlex
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from embodied_rm.data.dataset_files import check_file
from embodied_rm.data.subprocess_worker import SubprocessWorker
from embodied_rm.errors import DataError
from embodied_rm.types import Frames

FrameTimes = npt.NDArray[np.float64]
ALLOWED_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide", b"styp"})


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """Properties of a video file."""

    timestamps: FrameTimes  # float64 [T], s: presentation time of each frame, strictly increasing
    fps: float
    height: int  # of the frames as players show them, pixels
    width: int

    def __len__(self) -> int:
        return len(self.timestamps)


class VideoDecoder(SubprocessWorker):
    """Probes and reads mp4 files in a child process. Damaged and missing files raise `DataError`."""

    script = Path(__file__).parents[1] / "workers" / "decode.py"
    description = "video decoder"

    def probe(self, path: Path) -> VideoInfo:
        """Count the stored frames, and decode the first and the last one."""
        check_mp4(path)
        _, reply = self.request(path, "probe")
        timestamps = np.array(reply["pts"], np.float64)
        return VideoInfo(timestamps=timestamps, fps=reply["fps"], height=reply["height"], width=reply["width"])

    def read(self, path: Path, timestamps: npt.ArrayLike, fps: float, size: tuple[int, int] | None = None) -> Frames:
        """Read the frames within half a frame of some times [T] (s, any order), as uint8 [T, H, W, 3].

        With a size (height, width) they are resized while decoding, so that full-size frames are never stored.
        """
        requested = np.asarray(timestamps, np.float64)
        if len(requested) == 0 or not np.isfinite(requested).all():
            raise DataError(f"{path}: one time or more was expected, all finite, got {requested.tolist()}")
        if size is not None and not min(size) >= 1:
            raise DataError(f"{path}: size must be (height, width), both >= 1, got {size}")
        check_mp4(path)
        order = np.argsort(requested, kind="stable")
        fields = {"timestamps": requested[order].tolist(), "tolerance": 0.5 / fps, "size": size}
        frames, _ = self.request(path, "read", expect_array=True, **fields)
        assert frames is not None and len(frames) == len(requested)
        if np.array_equal(order, np.arange(len(order))):
            return frames
        return frames[np.argsort(order, kind="stable")]


def check_mp4(path: Path) -> None:
    """Check that a file is a complete mp4, by its box headers."""
    check_file(path, "video")
    size = path.stat().st_size
    with path.open("rb") as stream:
        boxes = _top_level_boxes(stream, path, size)
    for name, meaning in ((b"moov", "index"), (b"mdat", "images")):
        if name not in boxes and b"moof" not in boxes:
            raise DataError(f"{path}: the video is cut short: its {meaning} ({name!r}) is missing")


def conversion_command(path: Path) -> str:
    """Return the shell command that converts a video of another format, beside itself."""
    target = path.with_suffix(".mp4") if path.suffix != ".mp4" else path.with_stem(f"{path.stem}_converted")
    return f"ffmpeg -i {shlex.quote(str(path))} {shlex.quote(str(target))}"


def _top_level_boxes(stream: BinaryIO, path: Path, size: int) -> set[bytes]:
    """Return the names of the top-level boxes (ISO/IEC 14496-12, 4.2) after checking that each is inside the file."""
    boxes: set[bytes] = set()
    offset = 0
    while offset < size:
        stream.seek(offset)
        name, box_bytes = _box_header(stream, size - offset)
        if offset == 0 and name not in ALLOWED_FIRST_BOXES:
            raise DataError(f"{path}: not an mp4 video; `{conversion_command(path)}` converts one")
        if box_bytes < 8 or box_bytes > size - offset:
            reason = f"{size - offset} bytes are left where {name!r} needs {box_bytes}"
            raise DataError(f"{path}: the video is cut short: {reason}")
        boxes.add(name)
        offset += box_bytes
    return boxes


def _box_header(stream: BinaryIO, remaining: int) -> tuple[bytes, int]:
    """Read name and length of the box at the stream's position; `remaining` bytes of the file are left."""
    header = stream.read(16)
    if len(header) < 8:
        return header[4:8], 8
    length, name = struct.unpack(">I4s", header[:8])
    if length == 1:
        return name, struct.unpack(">Q", header[8:])[0] if len(header) == 16 else 16
    return name, remaining if length == 0 else length
