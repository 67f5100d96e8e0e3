"""Read episodes block by block with prefetching, so that a whole episode never has to fit into memory."""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from embodied_rm.data.degenerate_views import compare_views, sample_indices, thin_pixels, view_issues
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeSource, ImageSize
from embodied_rm.errors import DataError
from embodied_rm.types import Frames, Views

FRAMES_PER_BLOCK = 32  # maximum number of frames per block: enough for a batch
MAX_BLOCK_BYTES = 1 << 28  # of the images of a block, as far as one frame fits
PREFETCH_COUNT = 2  # number of prefetched blocks

T = TypeVar("T")
FrameBlock = tuple[int, Views | DataError]
"""Episode index with its next frames (one row of `Views` per frame), or with the error that ends the episode."""


def iter_blocks(
    source: EpisodeSource, indices: Iterable[int], views: Sequence[str], size: ImageSize | None
) -> Iterator[FrameBlock]:
    """Read the views of episodes in order, in blocks. `indices` is consumed in a thread. `size` None: as stored.

    An episode that cannot be read yields its error, and the next episode follows.
    """
    return prefetch(block for index in indices for block in iter_episode_blocks(source, index, views, size))


def iter_episode_blocks(
    source: EpisodeSource, index: int, views: Sequence[str], size: ImageSize | None
) -> Iterator[FrameBlock]:
    """Read one episode in blocks, see `iter_blocks`."""
    length = source.meta[index].length
    try:
        frame_size = size or source.image_size(index)
        num_frames = frames_per_block(frame_size, len(views))
        for start in range(0, length, num_frames):
            stop = min(start + num_frames, length)
            yield index, source.read_frames(index, start, stop, views=views, size=frame_size)
    except DataError as error:
        yield index, error


def frames_per_block(size: ImageSize, num_views: int) -> int:
    """Return how many frames of images of a size (height, width) a block has."""
    frame_bytes = size[0] * size[1] * 3 * num_views
    return min(FRAMES_PER_BLOCK, max(1, MAX_BLOCK_BYTES // frame_bytes))


def iter_views(blocks: Iterable[FrameBlock]) -> Iterator[Views]:
    """Yield the frames of one episode; raise the `DataError` that ends its blocks."""
    for _, views in blocks:
        if isinstance(views, DataError):
            raise views
        yield views


def validate_episode(source: EpisodeSource, index: int) -> list[DataIssue]:
    """Decode every frame of every view and check every number: return the issues that opening does not detect.

    At most one issue per view is returned: frames after a decoding error are not read. Views that show nothing are
    notes, see `degenerate_views`.
    """
    errors: list[DataError] = []
    sampled_views: dict[str, Frames] = {}
    try:
        size = source.image_size(index)  # once: it may probe the video
    except DataError as error:
        errors.append(error)
    else:
        for view in source.views:
            try:
                sampled_views[view] = _read_sampled_frames(source, index, view, size)
            except DataError as error:
                errors.append(error)
    try:
        source.columns(index)
    except DataError as error:
        errors.append(error)
    issues = [DataIssue.from_error(error, (source.meta[index].name,)) for error in errors]
    return [*issues, *view_issues(source, index, compare_views(sampled_views))]


def _read_sampled_frames(source: EpisodeSource, index: int, view: str, size: ImageSize) -> Frames:
    """Decode all frames of a view and return those of `sample_indices`, see `thin_pixels`, uint8 [T, H, W, 3]."""
    sampled, start, kept = sample_indices(source.meta[index].length), 0, []
    for views in iter_views(iter_episode_blocks(source, index, [view], size)):
        frames = np.asarray(views.frames)[:, 0]
        kept.append(thin_pixels(frames)[sampled[(sampled >= start) & (sampled < start + len(frames))] - start])
        start += len(frames)
    return np.concatenate(kept)


def count_blocks(source: EpisodeSource, indices: Iterable[int]) -> int:
    """Return the number of blocks that `iter_blocks` yields for readable episodes with images of a usual size."""
    return sum(-(-source.meta[index].length // FRAMES_PER_BLOCK) for index in indices)


def prefetch(items: Iterable[T]) -> Generator[T]:
    """Iterate over the items in a thread, up to `PREFETCH_COUNT` items ahead."""
    iterator = iter(items)
    executor = ThreadPoolExecutor(1, thread_name_prefix="video")
    try:
        futures = deque(executor.submit(next, iterator, None) for _ in range(PREFETCH_COUNT))
        while (item := futures.popleft().result()) is not None:
            futures.append(executor.submit(next, iterator, None))
            yield item
    finally:
        # Garbage collection may close an iteration that an error ended, in any thread, even in one that is just
        # starting: to wait for the end of another thread would then be a deadlock.
        executor.shutdown(wait=False, cancel_futures=True)
