"""Write mp4 files (H.264)."""

from __future__ import annotations

import secrets
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import Colorspace, Interpolation, VideoReformatter

from embodied_rm.errors import DataError
from embodied_rm.types import Frames

DEFAULT_QP = 18
"""H.264 quantizer of all frames but key frames, which get a finer one: 18 keeps small images above 40 dB PSNR.

It is constant because all other rate controls of x264 carry state: the bits of a video would depend on earlier videos
in the same file. The macroblock tree also reads uninitialized memory.
"""
KEY_FRAME_INTERVAL = 16
"""Frames between key frames: random access decodes half of it on average. At 64x64 the file is 10 % larger than with
30."""
SINGLE_THREAD_MAX_PIXELS = 160 * 160
"""Maximum pixels for a single encoding thread (measured at 64x64: 7.0k frames/s with one thread, 3.8k with two)."""
BT601_COLOR_TAGS = {"colorspace": 6, "color_range": 1}
"""Color conversion, stored in the file so that every player converts back correctly."""


class VideoWriter:
    """Writes one mp4 frame by frame. Until `close` writes the index, the name of the file ends in .partial."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int], qp: int = DEFAULT_QP) -> None:
        """Open a new file for images of a size (height, width), both even (H.264 with 4:2:0 chroma)."""
        height, width = size
        if height % 2 or width % 2:
            raise DataError(f"{path}: mp4 needs images of even height and width, got {width}x{height}")
        self.path, self.size = path, size
        self._partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        self.num_frames = 0
        """Number of frames written so far."""
        self.num_bytes = 0
        """Encoded bytes so far, without frames that the encoder still buffers."""
        frame_rate = Fraction(fps).limit_denominator(1001)
        self._container = av.open(str(self._partial), "w", format="mp4")
        self._stream = self._container.add_stream("libx264", rate=frame_rate)
        self._stream.width, self._stream.height, self._stream.pix_fmt = width, height, "yuv420p"
        self._stream.options = {
            "qp": str(qp),
            "preset": "veryfast",
            "g": str(KEY_FRAME_INTERVAL),
            "bf": "0",  # frames stored in presentation order: no edit list, exact seeking
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
        """Append uint8 [T, H, W, 3]; the first frame becomes a key frame."""
        if frames.dtype != np.uint8 or frames.shape[1:] != (*self.size, 3):
            expected, actual = f"uint8 [T, {self.size[0]}, {self.size[1]}, 3]", f"{frames.dtype} {list(frames.shape)}"
            raise DataError(f"{self.path}: frames must be {expected}, got {actual}")
        interpolation = Interpolation.AREA | Interpolation.ACCURATE_RND
        for i, pixels in enumerate(frames):
            rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
            frame = self._reformatter.reformat(
                rgb, format="yuv420p", dst_colorspace=Colorspace.ITU601, interpolation=interpolation, threads=1
            )
            frame.pts, frame.time_base = self.num_frames, self._time_base
            frame.pict_type = PictureType.I if i == 0 else PictureType.NONE
            self._mux(self._stream.encode(frame))
            self.num_frames += 1

    def close(self) -> None:
        """Flush the encoder and write the index."""
        self._mux(self._stream.encode())
        self._container.close()
        self._partial.replace(self.path)

    def _mux(self, packets: list[av.Packet]) -> None:
        self.num_bytes += sum(packet.size for packet in packets)
        self._container.mux(packets)

    def abandon(self) -> None:
        """Release the encoder and delete the file."""
        with suppress(OSError):  # it writes an index, which may fail for the reason that the recording ends
            self._container.close()
        self._partial.unlink(missing_ok=True)  # missing before the encoder has output its first frame

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        if exc_type is not None:
            self.abandon()
            return
        try:
            self.close()
        except BaseException:
            self.abandon()
            raise


def write_video(path: Path | str, frames: Frames, fps: float, qp: int = DEFAULT_QP) -> None:
    """Write uint8 [T, H, W, 3] as mp4 (H.264, yuv420p). H and W must be even."""
    if frames.ndim != 4 or len(frames) == 0:
        actual = f"{frames.dtype} {list(frames.shape)}"
        raise DataError(f"{path}: frames must be uint8 [T, H, W, 3] with T > 0, got {actual}")
    with VideoWriter(Path(path), fps, (frames.shape[1], frames.shape[2]), qp) as writer:
        writer.add(frames)
