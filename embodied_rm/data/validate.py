"""Full validation of episodes: decode every frame of every view and check every number."""

from __future__ import annotations

from collections.abc import Iterator

from embodied_rm.data.block_reader import FRAMES_PER_BLOCK
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError


def validate_episode(source: EpisodeSource, index: int) -> list[DataIssue]:
    """Return the issues of an episode that are not detected while opening: undecodable frames and non-finite numbers.

    At most one issue per view is returned: frames after a decoding error are not read.
    """
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
