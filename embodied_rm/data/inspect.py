"""Every frame of every view decoded, every number looked at: what opening a dataset does not see."""

from __future__ import annotations

from collections.abc import Iterator

from embodied_rm.data.faults import Fault
from embodied_rm.data.film import BLOCK
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError


def faults_inside(source: EpisodeSource, index: int) -> list[Fault]:
    """What is wrong with an episode that looked sound from outside: frames that cannot be decoded, numbers that are
    none. One fault a view at most: where decoding has failed nothing behind is believed."""
    name = source.meta[index].name
    said = [*_film_faults(source, index), *_number_faults(source, index)]
    return [Fault.told_by(error, (name,)) for error in said]


def _film_faults(source: EpisodeSource, index: int) -> Iterator[DataError]:
    length, size = source.meta[index].length, source.picture_size(index)
    for view in source.views:
        try:
            for start in range(0, length, BLOCK):
                source.moments(index, start, min(start + BLOCK, length), views=[view], size=size)
        except DataError as error:
            yield error


def _number_faults(source: EpisodeSource, index: int) -> Iterator[DataError]:
    try:
        source.columns(index)
    except DataError as error:
        yield error
