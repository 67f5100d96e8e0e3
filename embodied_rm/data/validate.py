"""Every frame of every view decoded, every number looked at: what opening a dataset does not see."""

from __future__ import annotations

from collections.abc import Iterator

from embodied_rm.data.block_reader import FRAMES_PER_BLOCK
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError


def validate_episode(source: EpisodeSource, index: int) -> list[DataIssue]:
    """What is wrong with an episode that looked sound from outside: frames that cannot be decoded, numbers that are
    none. One fault a view at most: where decoding has failed nothing behind is believed."""
    name = source.meta[index].name
    errors = [*_video_errors(source, index), *_column_errors(source, index)]
    return [DataIssue.from_error(error, (name,)) for error in errors]


def _video_errors(source: EpisodeSource, index: int) -> Iterator[DataError]:
    length, frame_size = source.meta[index].length, source.image_size(index)
    for view in source.views:
        try:
            for start in range(0, length, FRAMES_PER_BLOCK):
                source.read_frames(index, start, min(start + FRAMES_PER_BLOCK, length), views=[view], size=frame_size)
        except DataError as error:
            yield error


def _column_errors(source: EpisodeSource, index: int) -> Iterator[DataError]:
    try:
        source.columns(index)
    except DataError as error:
        yield error
