"""Demux and decode videos. Run by path (`python workers/decode.py`); imports only PyAV and numpy.

{"op": "probe", "path", "format"}                                   -> D {"pts": [s...], "fps", "height", "width"}
{"op": "read", "path", "format", "timestamps", "tolerance", "size"} -> uint8 [T, H, W, 3]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import av
import av.container
import av.error
import framing
import numpy as np
from av.sidedata.sidedata import SideDataContainer
from av.video.reformatter import VideoReformatter

CODECS = frozenset(
    {"h264", "hevc", "av1", "libdav1d", "vp9", "mpeg4", "vp8", "mjpeg", "gif", "prores", "ffv1", "rawvideo"}
)
FORMATS = frozenset({"mp4", "matroska", "avi", "gif"})
"""FFmpeg's names of the containers; the others include playlists, which name further files."""
MAX_RATE_DEVIATION = 0.01  # share by which the frame rate that a file states may differ from that of its frames
SINGLE_THREAD_MAX_PIXELS = 160 * 160
"""Maximum pixels for a single decoding thread (measured: 40k frames/s with one thread, 16k with more)."""
MAX_OPEN_FILES = 8
MAX_MEMORY_BYTES = 1 << 33  # of all open files together: a decoder of 8K needs about 1 GB
MAX_ASPECT_DEVIATION = 0.02  # log of the ratio between the aspect ratios of two frames that counts as equal
SEEK_GAP_S = 4.0  # gap from which seeking is faster than decoding the frames in between
SIDE_DATA_OF: Any = SideDataContainer
"""Not `frame.side_data`, which the frame keeps although it refers to the frame: such a cycle holds its pixels."""


class Orientation(NamedTuple):
    """How a stored frame becomes the one that is shown: rows and columns are exchanged first."""

    transposed: bool
    mirrored: bool  # whether left and right are exchanged
    flipped: bool  # whether top and bottom are exchanged


def read_orientation(frame: av.VideoFrame) -> Orientation:
    """Read the display matrix of a frame (ISO/IEC 14496-12, 8.3.2); angles between the axes are taken as the nearest.

    A pixel (x, y) is shown at (a x + c y, b x + d y), up to a shift.
    """
    matrix = SIDE_DATA_OF(frame).get("DISPLAYMATRIX")
    if matrix is None:
        return Orientation(False, False, False)
    a, b, _, c, d = np.frombuffer(matrix, np.int32)[:5].tolist()
    if abs(a) + abs(d) >= abs(b) + abs(c):
        return Orientation(False, mirrored=a < 0, flipped=d < 0)
    return Orientation(True, mirrored=c < 0, flipped=b < 0)


def display_size(frame: av.VideoFrame) -> tuple[int, int]:
    """Return the height and width at which players show a frame, in pixels."""
    return (frame.width, frame.height) if read_orientation(frame).transposed else (frame.height, frame.width)


def display_pixels(reformatter: VideoReformatter, frame: av.VideoFrame, size: Sequence[int]) -> np.ndarray:
    """Return a frame as players show it, uint8 [H, W, 3] of a size (height, width)."""
    transposed, mirrored, flipped = read_orientation(frame)
    pixels = framing.resize_rgb(reformatter, frame, size[::-1] if transposed else size)
    if transposed:
        pixels = pixels.transpose(1, 0, 2)
    return np.ascontiguousarray(pixels[:: -1 if flipped else 1, :: -1 if mirrored else 1])


class OpenVideo:
    """An open file with its decoding position."""

    def __init__(self, path: str, container_format: str) -> None:
        if container_format not in FORMATS:
            raise framing.InvalidFileError(f"container {container_format!r} is not supported")
        options = {"protocol_whitelist": "file"}
        self.container = av.open(path, format=container_format, options=options, metadata_errors="replace")
        if len(self.container.streams.video) == 0:
            raise framing.InvalidFileError("it holds no video stream")
        self.stream = self.container.streams.video[0]
        if self.stream.time_base is None:
            raise framing.InvalidFileError("it states no time base")
        self.time_base = self.stream.time_base
        context = self.stream.codec_context
        codec = "unknown" if context is None else context.name
        if codec not in CODECS:
            raise framing.InvalidFileError(f"codec {codec!r} is not supported (only {', '.join(sorted(CODECS))})")
        if not 0 < context.width * context.height <= framing.MAX_PIXELS:
            raise framing.InvalidFileError(f"its images claim to be {context.width}x{context.height}")
        context.options = {"max_pixels": str(framing.MAX_PIXELS)}
        context.thread_count = 1 if context.width * context.height <= SINGLE_THREAD_MAX_PIXELS else 2
        context.thread_type = "FRAME" if context.thread_count > 1 else "NONE"
        self._frames: Iterator[av.VideoFrame] = iter(())
        self._next: av.VideoFrame | None = None
        self._current: av.VideoFrame | None = None
        """The frame last returned (None: seek first); `_next` follows it."""
        self._current_time = 0.0
        """The time requested for it, s."""
        self._stated_size = context.width, context.height  # decoding changes those of the context
        self.reformatter = VideoReformatter()

    def frame_rate(self, times: Sequence[float]) -> float:
        """Return the frame rate that the file states, or that of its frames (s) if it states none or another one."""
        stated = float(self.stream.average_rate or 0)
        if len(times) == 1:
            if not stated:
                raise framing.InvalidFileError("it states no frame rate")
            return stated
        mean = (len(times) - 1) / (times[-1] - times[0])
        return stated if abs(stated - mean) <= MAX_RATE_DEVIATION * mean else mean

    def close(self) -> None:
        self.container.close()

    def packet_times(self) -> list[float]:
        """Return the times of all stored frames in presentation order, s. Demuxes the whole file, decodes nothing."""
        self.container.seek(0)
        self._current = None
        num_stored, times = 0, []
        for packet in self.container.demux(self.stream):
            if packet.size == 0:
                continue
            if packet.is_corrupt or packet.pts is None:
                raise framing.InvalidFileError(f"it is cut short or damaged at frame {num_stored}")
            num_stored += 1
            if not packet.is_discard:
                times.append(float(packet.pts * self.time_base))
        if self.stream.frames and num_stored != self.stream.frames:
            raise framing.InvalidFileError(f"it is cut short: {num_stored} of {self.stream.frames} frames are there")
        times.sort()
        if len(times) == 0:
            raise framing.InvalidFileError("it holds no frames")
        if any(b <= a for a, b in pairwise(times)):
            raise framing.InvalidFileError("two of its frames have the same time")
        return times

    def _decode_next(self) -> av.VideoFrame | None:
        """Return the next frame, None: after the last one; `InvalidFileError` for a frame without a time."""
        frame = next(self._frames, None)
        if frame is not None and frame.time is None:
            raise framing.InvalidFileError("it is damaged: one of its frames has no time")
        return frame

    def seek(self, time: float) -> av.VideoFrame:
        """Decode a frame at or before a time (s), or the first frame of the file."""
        tick_s = float(self.time_base)
        # With reordered frames a seek may return a later key frame; then seek to an earlier time.
        for offset_s in (0.0, 1.0, 10.0, 1e9):
            target = max(0.0, time - offset_s)
            self.container.seek(round(target / tick_s), stream=self.stream, backward=True)
            self._frames = self.container.decode(self.stream)
            frame, self._next = self._decode_next(), self._decode_next()
            if frame is not None and (frame.time <= time + tick_s or target == 0.0):
                return frame
        raise framing.InvalidFileError(f"no frame can be decoded at {time:.3f} s")

    def frame_at(self, time: float, tolerance: float) -> av.VideoFrame:
        """Return the frame nearest to a time; `InvalidFileError` if none is within the tolerance (both s)."""
        nearest = self._current
        if nearest is None or not self._current_time <= time <= self._current_time + SEEK_GAP_S:
            nearest = self.seek(time)
        while self._next is not None and abs(self._next.time - time) < abs(nearest.time - time):
            nearest, self._next = self._next, self._decode_next()
        self._current, self._current_time = nearest, time
        if abs(nearest.time - time) > tolerance:
            raise framing.InvalidFileError(f"it has no frame at {time:.3f} s")
        if nearest.is_corrupt:
            raise framing.InvalidFileError(f"the frame at {time:.3f} s is damaged")
        self._check_size(nearest)
        return nearest

    def _check_size(self, frame: av.VideoFrame) -> None:
        """Raise `InvalidFileError` for a frame of other proportions, which resizing would change.

        Some videos change their resolution and keep their proportions, as those of a network with little bandwidth.
        """
        width, height = self._stated_size
        if abs(math.log(frame.width * height / (frame.height * width))) > MAX_ASPECT_DEVIATION:
            sizes = f"{width}x{height} is stated, and the one at {frame.time:.3f} s has {frame.width}x{frame.height}"
            raise framing.InvalidFileError(f"its frames have two sizes: {sizes}. Split it where the size changes")


VIDEO_CACHE = framing.FileCache(OpenVideo, MAX_OPEN_FILES)


def handle_request(request: dict[str, Any], out: BinaryIO) -> None:
    """Handle one request."""
    try:
        video = VIDEO_CACHE.get(request["path"], request["format"])
        if request["op"] == "probe":
            send_probe(video, out)
        else:
            send_frames(video, request, out)
    except MemoryError:
        VIDEO_CACHE.clear()  # the next file needs the memory of the others
        raise
    except Exception:
        VIDEO_CACHE.drop(request["path"])  # the decoder may be in any state after an error
        raise


def send_probe(video: OpenVideo, out: BinaryIO) -> None:
    """Reply with the properties of the file, after decoding its first and last frame."""
    times = video.packet_times()
    fps = video.frame_rate(times)
    tolerance = 0.5 / fps
    height, width = display_size(video.frame_at(times[0], tolerance))
    video.frame_at(times[-1], tolerance)
    framing.send_result(out, {"pts": times, "fps": fps, "height": height, "width": width})


def send_frames(video: OpenVideo, request: dict[str, Any], out: BinaryIO) -> None:
    """Reply with the frames at the given times (s, non-decreasing)."""
    times, tolerance = request["timestamps"], request["tolerance"]
    height, width = size = request["size"] or display_size(video.frame_at(times[0], tolerance))
    framing.send_header(out, (len(times), height, width, 3), "uint8")
    frames_per_chunk = max(1, framing.CHUNK_BYTES // (height * width * 3))
    for start in range(0, len(times), frames_per_chunk):
        frames = (video.frame_at(time, tolerance) for time in times[start : start + frames_per_chunk])
        pixels = np.stack([display_pixels(video.reformatter, frame, size) for frame in frames])
        framing.send_chunk(out, b"F", pixels.data.cast("B"))
    framing.send_result(out, {})


if __name__ == "__main__":
    framing.limit_memory(MAX_MEMORY_BYTES)
    framing.serve(handle_request, (av.error.FFmpegError,))
