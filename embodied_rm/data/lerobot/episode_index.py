"""The episodes that a LeRobot dataset lists, whichever version it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError


@dataclass(frozen=True, kw_only=True)
class EpisodeIndexRow:
    """One episode and the files that hold it."""

    index: int
    meta: EpisodeMeta
    dataset_from_index: int | None
    """Its first row in the dataset's frames; None where the list does not say."""
    data_path: Path
    videos: Mapping[str, tuple[Path, float]]
    """View -> file, and the time in it of the first frame, s."""


MAX_MISSING_EPISODES = 10_000
"""Episodes that may be missing for a dataset to be one with gaps, and not another one's description."""


def default_name(index: int) -> str:
    """What an episode is called that has no name of its own."""
    return f"episode_{index:06d}"


def check_episode_list(
    listing: Path, rows: Sequence[EpisodeIndexRow], reported: Collection[int], num_episodes: int
) -> list[DataIssue]:
    """Episodes that should be among the rows and are not, or are there more than once.

    `known`: the indices of those whose entry is wrong and was found so; `total`: how many `info.json` states.
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
