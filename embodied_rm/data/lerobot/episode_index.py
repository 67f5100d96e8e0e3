"""The episode index of a LeRobot dataset, independent of its version."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot.episode_subtasks import find_unread_subtasks
from embodied_rm.data.lerobot.success_columns import find_unread_success
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.data.video.decoder import FrameTimes
from embodied_rm.errors import DataError
from embodied_rm.types import IntArray


class VideoSegment(NamedTuple):
    """The frames of an episode in a video."""

    path: Path
    start: float | None = None  # time of the first frame, s; None: that of the video's first frame
    end: float | None = None  # stated end of the last frame, s
    times: FrameTimes | None = None
    """float64 [T], s: time of each frame; None: they follow each other at the frame rate of the dataset."""

    def times_of(self, frame_indices: IntArray, fps: float) -> FrameTimes:
        """Return the times of some frames of the episode, s."""
        assert self.start is not None
        return self.start + frame_indices / fps if self.times is None else self.times[frame_indices]


@dataclass(frozen=True, kw_only=True)
class EpisodeIndexRow:
    """One episode and its files."""

    index: int
    meta: EpisodeMeta
    dataset_from_index: int | None  # index of its first frame in the dataset; None if not listed
    data_path: Path
    videos: Mapping[str, VideoSegment]  # view -> its frames, of views that are stored as videos


MAX_MISSING_EPISODES = 10_000  # maximum number of missing episodes; beyond it `info.json` belongs to another dataset


def default_name(index: int) -> str:
    """Return the name of an episode without a stored name."""
    return f"episode_{index:06d}"


def check_episode_list(
    listing: Path, rows: Sequence[EpisodeIndexRow], reported: Collection[int], num_episodes: int
) -> list[DataIssue]:
    """Find episodes that are missing from the index `listing` or listed more than once.

    `reported` are the episode indices of invalid rows, which have issues already. More than `MAX_MISSING_EPISODES`
    missing episodes raise `DataError`.
    """
    issues = []
    for index, count in sorted(Counter(row.index for row in rows).items()):
        names = tuple(dict.fromkeys(row.meta.name for row in rows if row.index == index))
        if count > 1:
            issues.append(DataIssue(file=listing, message=f"episode {index} is listed {count} times", episodes=names))
        elif not 0 <= index < num_episodes:
            message = f"episode {index} is listed, where info.json states {num_episodes} episodes"
            issues.append(DataIssue(file=listing, message=message, episodes=names))
    for name, count in Counter(row.meta.name for row in rows if row.meta.name != default_name(row.index)).items():
        if count > 1:
            issues.append(DataIssue(file=listing, message=f"{count} episodes have the name {name}", episodes=(name,)))
    listed = {row.index for row in rows} | set(reported)
    if num_episodes > len(listed) + MAX_MISSING_EPISODES:
        raise DataError(f"{listing}: lists {len(listed)} episodes, info.json states {num_episodes}")
    return issues + [
        DataIssue(file=listing, message=f"episode {index} is not listed", episodes=(default_name(index),))
        for index in range(num_episodes)
        if index not in listed
    ]


def first_instruction(tasks: Sequence[str | None]) -> str:
    """Return the first of the tasks that is not blank, in single spaces; empty if there is none."""
    return next(filter(None, (" ".join((task or "").split()) for task in tasks)), "")


def find_unread(listing: Path, records: Sequence[Mapping[str, Any]], columns: Collection[str]) -> list[DataIssue]:
    """Return an issue per annotation of episodes that is not understood; it excludes no episode.

    Args:
        listing: The episode index.
        records: Its rows, of the columns that are read.
        columns: All its columns; `<column>/<key>` is an entry of one.
    """
    messages = (*find_unread_subtasks(columns), *find_unread_success(records, columns))
    return [DataIssue(file=listing, message=message, episodes=()) for message in messages]
