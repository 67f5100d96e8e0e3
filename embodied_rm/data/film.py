"""Recordings as films: read block by block in a thread, while the block before is used, and never held whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from embodied_rm.data.source import EpisodeSource
from embodied_rm.types import Views

BLOCK = 32
"""Frames of a block: enough to be judged side by side, few enough to lie in memory at any picture size."""
AHEAD = 2
"""Blocks that are read before they are asked for."""

T = TypeVar("T")


def films(
    source: EpisodeSource, rows: Sequence[int], views: Sequence[str], size: tuple[int, int] | None
) -> Iterator[tuple[int, Views]]:
    """The episodes `rows` one after the other, (row, frames of the next block): a row of `Views` is a frame.

    Reads ahead. `size` (height, width); None: as each was stored. Raises `DataError` naming a file and its fault.
    """
    return ahead(
        (row, source.moments(row, start, min(start + BLOCK, length), views=views, size=shape))
        for row in rows
        for length, shape in ((source.meta[row].length, size or source.picture_size(row)),)
        for start in range(0, length, BLOCK)
    )


def count_blocks(source: EpisodeSource, rows: Sequence[int]) -> int:
    """How many blocks `films` gives."""
    return sum(-(-source.meta[row].length // BLOCK) for row in rows)


def ahead(items: Iterable[T]) -> Generator[T]:
    """The items, made in a thread, up to `AHEAD` of them before they are asked for."""
    rest = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="film") as reader:
        made = deque(reader.submit(next, rest, None) for _ in range(AHEAD))
        while (item := made.popleft().result()) is not None:
            made.append(reader.submit(next, rest, None))
            yield item
