"""Demuxes and decodes videos. Run by path (`python workers/decode.py`); imports PyAV and numpy and nothing else.

{"op": "probe", "path"}                                   -> D {"pts": [s...], "fps", "height", "width"}
{"op": "read", "path", "timestamps", "tolerance", "size"} -> uint8 [T, H, W, 3]
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import av
import av.container
import av.error
import numpy as np
from av.video.reformatter import VideoReformatter
from protocol import CHUNK, MAX_PIXELS, Fault, rgb, send, send_header, send_told, serve

CODECS = frozenset({"h264", "hevc", "av1", "libdav1d", "vp9", "mpeg4"})
SMALL = 160 * 160
"""Pixels up to which more than one decoding thread costs more than it brings (measured: 40k against 16k frames/s)."""
OPEN_FILES = 8
SEEK_GAP_S = 4.0
"""Seconds ahead from which seeking beats decoding on."""


class OpenVideo:
    """One open file and the place in it up to which it has been decoded."""

    def __init__(self, path: str) -> None:
        self.container = av.open(path, format="mp4", options={"protocol_whitelist": "file"}, metadata_errors="replace")
        if len(self.container.streams.video) == 0:
            raise Fault("it holds no video stream")
        self.stream = self.container.streams.video[0]
        if self.stream.time_base is None:
            raise Fault("it states no time base")
        self.time_base = self.stream.time_base
        context = self.stream.codec_context
        codec = "unknown" if context is None else context.name
        if codec not in CODECS:
            raise Fault(f"codec {codec!r} is not supported (only {', '.join(sorted(CODECS))})")
        if not 0 < context.width * context.height <= MAX_PIXELS:
            raise Fault(f"its pictures claim to be {context.width}x{context.height}")
        self.size = (context.height, context.width)
        context.options = {"max_pixels": str(MAX_PIXELS)}
        context.thread_count = 1 if context.width * context.height <= SMALL else 2
        context.thread_type = "FRAME" if context.thread_count > 1 else "NONE"
        self._frames: Iterator[av.VideoFrame] = iter(())
        self._next: av.VideoFrame | None = None
        self._here: av.VideoFrame | None = None
        """The frame last given out (None: seek first); `_next` follows it."""
        self._asked = 0.0
        """The time it was asked for, s."""
        self.reformatter = VideoReformatter()

    @property
    def fps(self) -> float:
        rate = self.stream.average_rate
        if not rate:
            raise Fault("it states no frame rate")
        return float(rate)

    def packet_times(self) -> list[float]:
        """Times of all stored frames in order of presentation, s. Demuxes everything, decodes nothing."""
        self.container.seek(0)
        self._here = None
        stored, times = 0, []
        for packet in self.container.demux(self.stream):
            if packet.size == 0:
                continue
            if packet.is_corrupt or packet.pts is None:
                raise Fault(f"it is cut short or damaged at frame {stored}")
            stored += 1
            if not packet.is_discard:
                times.append(float(packet.pts * self.time_base))
        if self.stream.frames and stored != self.stream.frames:
            raise Fault(f"it is cut short: {stored} of {self.stream.frames} frames are there")
        times.sort()
        if len(times) == 0:
            raise Fault("it holds no frames")
        if any(b <= a for a, b in pairwise(times)):
            raise Fault("two of its frames have the same time")
        return times

    def seek(self, time: float) -> av.VideoFrame:
        """Decode a frame that is not after the one at that time (s), unless it is the first of all."""
        tick = float(self.time_base)
        # A stream with reordered frames may answer with a later key frame: then ask for an earlier one.
        for earlier in (0.0, 1.0, 10.0, 1e9):
            target = max(0.0, time - earlier)
            self.container.seek(round(target / tick), stream=self.stream, backward=True)
            self._frames = self.container.decode(self.stream)
            frame, self._next = next(self._frames, None), next(self._frames, None)
            if frame is not None and (frame.time <= time + tick or target == 0.0):
                return frame
        raise Fault(f"no frame can be decoded at {time:.3f} s")

    def frame_at(self, time: float, tolerance: float) -> av.VideoFrame:
        """The frame nearest to that time; a `Fault` when none lies within the tolerance (both s)."""
        near = self._here
        if near is None or not self._asked <= time <= self._asked + SEEK_GAP_S:
            near = self.seek(time)
        while self._next is not None and abs(self._next.time - time) < abs(near.time - time):
            near, self._next = self._next, next(self._frames, None)
        self._here, self._asked = near, time
        if abs(near.time - time) > tolerance:
            raise Fault(f"it has no frame at {time:.3f} s")
        if near.is_corrupt:
            raise Fault(f"the frame at {time:.3f} s is damaged")
        return near


class Files:
    """The few files most recently read, kept open: episodes that follow each other need no seek."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[tuple[int, ...], OpenVideo]] = OrderedDict()

    def get(self, path: str) -> OpenVideo:
        """The open file, opened anew if it has been written since."""
        status = Path(path).stat()
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if path in self._open and self._open[path][0] != state:
            self.drop(path)
        if path not in self._open:
            self._open[path] = state, OpenVideo(path)
            while len(self._open) > OPEN_FILES:
                self.drop(next(iter(self._open)))
        self._open.move_to_end(path)
        return self._open[path][1]

    def drop(self, path: str) -> None:
        """Close the file if it is open."""
        if path in self._open:
            self._open.pop(path)[1].container.close()


FILES = Files()


def answer(request: dict[str, Any], out: BinaryIO) -> None:
    """One request."""
    try:
        video = FILES.get(request["path"])
        if request["op"] == "probe":
            probe(video, out)
        else:
            read(video, request, out)
    except Exception:
        FILES.drop(request["path"])  # where in it a fault leaves the decoder, nobody knows
        raise


def probe(video: OpenVideo, out: BinaryIO) -> None:
    """Answer what the file holds, after decoding its first and its last frames."""
    times = video.packet_times()
    tolerance = 0.5 / video.fps
    for time in (times[0], times[-1]):
        video.frame_at(time, tolerance)
    send_told(out, {"pts": times, "fps": video.fps, "height": video.size[0], "width": video.size[1]})


def read(video: OpenVideo, request: dict[str, Any], out: BinaryIO) -> None:
    """Answer with the frames at the given times (s, not falling)."""
    height, width = size = request["size"] or video.size
    times, tolerance = request["timestamps"], request["tolerance"]
    send_header(out, (len(times), height, width, 3), "uint8")
    frames_a_chunk = max(1, CHUNK // (height * width * 3))
    for start in range(0, len(times), frames_a_chunk):
        frames = (video.frame_at(time, tolerance) for time in times[start : start + frames_a_chunk])
        pixels = np.stack([rgb(video.reformatter, frame, size) for frame in frames])
        send(out, b"F", pixels.data.cast("B"))
    send_told(out, {})


if __name__ == "__main__":
    serve(answer, (av.error.FFmpegError,))
