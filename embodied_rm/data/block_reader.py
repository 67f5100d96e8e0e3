"""Recordings as videos: read block by block in a thread, while the block before is used, and never held whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.types import Views

FRAMES_PER_BLOCK = 32
"""Frames of a block: enough to be judged side by side, few enough to lie in memory at any image size."""
PREFETCH_COUNT = 2
"""Blocks that are read before they are asked for."""

T = TypeVar("T")
FrameBlock = tuple[int, Views | DataError]
"""Which episode it is of, and its next frames, a row of `Views` a frame; or why there are no more."""


def iter_blocks(
    source: EpisodeSource, indices: Iterable[int], views: Sequence[str], size: tuple[int, int] | None
) -> Iterator[FrameBlock]:
    """The episodes `rows` one after the other, in blocks; what cannot be read ends its episode, and the next follows.

    Reads ahead, so that `rows` are taken in a thread. `size` (height, width); None: as each was stored.
    """
    return prefetch(block for index in indices for block in iter_episode_blocks(source, index, views, size))


def iter_episode_blocks(
    source: EpisodeSource, index: int, views: Sequence[str], size: tuple[int, int] | None
) -> Iterator[FrameBlock]:
    """One episode, see `videos`."""
    length = source.meta[index].length
    try:
        frame_size = size or source.image_size(index)
        for start in range(0, length, FRAMES_PER_BLOCK):
            yield (
                index,
                source.read_frames(index, start, min(start + FRAMES_PER_BLOCK, length), views=views, size=frame_size),
            )
    except DataError as error:
        yield index, error


def iter_views(blocks: Iterable[FrameBlock]) -> Iterator[Views]:
    """The frames of one episode. Raises `DataError` where they end with a fault."""
    for _, views in blocks:
        if isinstance(views, DataError):
            raise views
        yield views


def count_blocks(source: EpisodeSource, indices: Iterable[int]) -> int:
    """How many blocks `videos` gives of episodes without a fault."""
    return sum(-(-source.meta[index].length // FRAMES_PER_BLOCK) for index in indices)


def prefetch(items: Iterable[T]) -> Generator[T]:
    """The items, made in a thread, up to `AHEAD` of them before they are asked for."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="video") as executor:
        futures = deque(executor.submit(next, iterator, None) for _ in range(PREFETCH_COUNT))
        while (item := futures.popleft().result()) is not None:
            futures.append(executor.submit(next, iterator, None))
            yield item
