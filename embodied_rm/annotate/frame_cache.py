"""JPEG images of frames for the browser, by index of episode, view and frame."""

import io
import threading
from collections import OrderedDict

import numpy as np
from PIL import Image

from embodied_rm.annotate.proposals import fit_size
from embodied_rm.data.source import EpisodeSource
from embodied_rm.types import Frames

FRAMES_PER_BLOCK = 8  # frames decoded at once; neighboring frames are usually requested next
MAX_CACHE_BYTES = 256 << 20  # size limit of the decoded frames in memory
MAX_IMAGE_SIDE = 640  # longer side of an image, pixels; larger images are resized
JPEG_QUALITY = 88


class JpegFrameCache:
    """JPEG images of the frames of a source. Thread-safe."""

    def __init__(self, source: EpisodeSource) -> None:
        self._source, self._lock = source, threading.Lock()
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}
        self._blocks: OrderedDict[tuple[int, int, int], Frames] = OrderedDict()

    def encode_frame(self, index: int, view: int, frame: int) -> bytes:
        """Return one frame as JPEG. The indices must be valid."""
        start = frame // FRAMES_PER_BLOCK * FRAMES_PER_BLOCK
        with self._lock:  # the decoder handles one request at a time anyway
            block = self._load_block(index, view, start)
        return encode_jpeg(block[frame - start])

    def _load_block(self, index: int, view: int, start: int) -> Frames:
        key = (index, view, start)
        if key not in self._blocks:
            stop = min(start + FRAMES_PER_BLOCK, self._source.meta[index].length)
            self._blocks[key] = self._read_frames(index, view, start, stop, self._display_size(index, view))
            while sum(block.nbytes for block in self._blocks.values()) > MAX_CACHE_BYTES and len(self._blocks) > 1:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        return self._blocks[key]

    def _display_size(self, index: int, view: int) -> tuple[int, int]:
        """(height, width) of the images of a view: as stored, or smaller."""
        if (index, view) not in self._sizes:
            height, width = self._read_frames(index, view, 0, 1, None).shape[1:3]
            self._sizes[index, view] = fit_size(height, width, MAX_IMAGE_SIDE)
        return self._sizes[index, view]

    def _read_frames(self, index: int, view: int, start: int, stop: int, size: tuple[int, int] | None) -> Frames:
        frame_views = self._source.read_frames(index, start, stop, views=[self._source.views[view]], size=size)
        return np.asarray(frame_views.frames)[:, 0]


def encode_jpeg(image: Frames) -> bytes:
    """Return an image uint8 [H, W, 3] as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()
