"""Video files: write mp4 (H.264), look at one, read frames by their time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

from embodied_rm.data.stride import stride_indices
from embodied_rm.data.video.decoder import VideoDecoder, VideoInfo
from embodied_rm.errors import DataError
from embodied_rm.types import Frames

DEFAULT_QP = 18
"""H.264's quantiser of every image but the key frames, which get a finer one: 18 keeps small images above 40 dB.

A constant one, since every other rate control of x264 remembers: it gives a video other bits after another video in the
same file, and its macroblock tree reads memory that nobody wrote.
"""
KEY_FRAME_INTERVAL = 16
"""Frames between key frames: random access decodes half of it on average; at 64x64 it costs 10 % of the size of 30."""
SINGLE_THREAD_MAX_PIXELS = 160 * 160
"""Pixels up to which one encoding thread is faster than two (measured: 7.0k against 3.8k frames/s at 64x64)."""
BT601_COLOR_TAGS = {"colorspace": 6, "color_range": 1}
"""What the pixels are converted to, stated in the file so that every player converts back the same."""


class VideoWriter:
    """Writes one mp4, frame by frame. Finished only after `close`: until then the file has no index."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int], qp: int = DEFAULT_QP) -> None:
        """`size` is (height, width), both even (H.264 with 4:2:0 chroma). Raises `DataError` otherwise."""
        height, width = size
        if height % 2 or width % 2:
            raise DataError(f"{path}: mp4 needs images of even height and width, got {width}x{height}")
        self.path, self.size = path, size
        self.num_frames = 0
        """Frames written so far."""
        self.num_bytes = 0
        """Their size, as far as the encoder has given them out."""
        frame_rate = Fraction(fps).limit_denominator(1001)
        self._container = av.open(str(path), "w", format="mp4")
        self._stream = self._container.add_stream("libx264", rate=frame_rate)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.options = {
            "qp": str(qp),
            "preset": "veryfast",
            "g": str(KEY_FRAME_INTERVAL),
            "bf": "0",  # frames stored in the order in which they are shown: no edit list, exact seeking
            "forced-idr": "1",
        }
        context = self._stream.codec_context
        context.thread_count = 1 if height * width <= SINGLE_THREAD_MAX_PIXELS else 2
        context.time_base = 1 / frame_rate
        for name, value in BT601_COLOR_TAGS.items():
            setattr(context, name, value)
        self._time_base = 1 / frame_rate
        self._reformatter = VideoReformatter()

    def add(self, frames: Frames) -> None:
        """Append uint8 [T, H, W, 3]; the first of them becomes a key frame."""
        if frames.dtype != np.uint8 or frames.shape[1:] != (*self.size, 3):
            raise DataError(
                f"{self.path}: frames must be uint8 [T, {self.size[0]}, {self.size[1]}, 3], "
                f"got {frames.dtype} {list(frames.shape)}"
            )
        for i, pixels in enumerate(frames):
            rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame = self._reformatter.reformat(
                rgb,
                format="yuv420p",
                dst_colorspace=Colorspace.ITU601,
                interpolation=Interpolation.AREA | Interpolation.ACCURATE_RND,
                threads=1,
            )
            frame.pts, frame.time_base = self.num_frames, self._time_base
            frame.pict_type = PictureType.I if i == 0 else PictureType.NONE
            self._mux(self._stream.encode(frame))
            self.num_frames += 1

    def close(self) -> None:
        """Write what the encoder still holds, and the index."""
        self._mux(self._stream.encode())
        self._container.close()

    def _mux(self, packets: list[av.Packet]) -> None:
        self.num_bytes += sum(packet.size for packet in packets)
        self._container.mux(packets)

    def abandon(self) -> None:
        """Free the encoder and delete the file."""
        self._container.close()  # writes an index: half a recording would look whole
        self.path.unlink(missing_ok=True)  # there is none before the encoder has given out its first frame

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self.abandon()


def write_video(path: Path | str, frames: Frames, fps: float, qp: int = DEFAULT_QP) -> None:
    """Write uint8 [T, H, W, 3] as mp4 (H.264, yuv420p). H and W must be even. Raises `DataError`."""
    if frames.ndim != 4 or len(frames) == 0:
        raise DataError(
            f"{path}: frames must be uint8 [T, H, W, 3] with T > 0, got {frames.dtype} {list(frames.shape)}"
        )
    with VideoWriter(Path(path), fps, (frames.shape[1], frames.shape[2]), qp) as writer:
        writer.add(frames)


def probe_video(path: Path | str) -> VideoInfo:
    """What a local mp4 holds. Raises `DataError` naming the file and its fault."""
    with VideoDecoder() as decoder:
        return decoder.probe(Path(path))


def read_frames(
    path: Path | str,
    timestamps: Sequence[float] | None = None,
    *,
    stride: int = 1,
    size: tuple[int, int] | None = None,
) -> Frames:
    """Frames of one mp4: uint8 [T, H, W, 3].

    `timestamps` (s): the frame shown at each, met within half a frame; otherwise every `stride`-th frame and the last.
    `size` (height, width) resizes while decoding. Raises `DataError` naming the file and its fault.
    """
    with VideoDecoder() as decoder:
        info = decoder.probe(Path(path))
        times = info.timestamps[stride_indices(len(info), stride)] if timestamps is None else timestamps
        return decoder.read(Path(path), times, info.fps, size)
