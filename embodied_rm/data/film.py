"""Recordings as films: read block by block in a thread, while the block before is used, and never held whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.types import Views

BLOCK = 32
"""Frames of a block: enough to be judged side by side, few enough to lie in memory at any picture size."""
AHEAD = 2
"""Blocks that are read before they are asked for."""

T = TypeVar("T")
Block = tuple[int, Views | DataError]
"""Which episode it is of, and its next frames, a row of `Views` a frame; or why there are no more."""


def films(
    source: EpisodeSource, rows: Iterable[int], views: Sequence[str], size: tuple[int, int] | None
) -> Iterator[Block]:
    """The episodes `rows` one after the other, in blocks; what cannot be read ends its episode, and the next follows.

    Reads ahead, so that `rows` are taken in a thread. `size` (height, width); None: as each was stored.
    """
    return ahead(block for row in rows for block in film(source, row, views, size))


def film(source: EpisodeSource, row: int, views: Sequence[str], size: tuple[int, int] | None) -> Iterator[Block]:
    """One episode, see `films`."""
    length = source.meta[row].length
    try:
        shape = size or source.picture_size(row)
        for start in range(0, length, BLOCK):
            yield row, source.moments(row, start, min(start + BLOCK, length), views=views, size=shape)
    except DataError as error:
        yield row, error


def shown(blocks: Iterable[Block]) -> Iterator[Views]:
    """The frames of one episode. Raises `DataError` where they end with a fault."""
    for _, views in blocks:
        if isinstance(views, DataError):
            raise views
        yield views


def count_blocks(source: EpisodeSource, rows: Iterable[int]) -> int:
    """How many blocks `films` gives of episodes without a fault."""
    return sum(-(-source.meta[row].length // BLOCK) for row in rows)


def ahead(items: Iterable[T]) -> Generator[T]:
    """The items, made in a thread, up to `AHEAD` of them before they are asked for."""
    rest = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix="film") as reader:
        made = deque(reader.submit(next, rest, None) for _ in range(AHEAD))
        while (item := made.popleft().result()) is not None:
            made.append(reader.submit(next, rest, None))
            yield item
