"""The episode index of a LeRobot dataset, independent of its version."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError


@dataclass(frozen=True, kw_only=True)
class EpisodeIndexRow:
    """One episode and its files."""

    index: int
    meta: EpisodeMeta
    dataset_from_index: int | None  # index of its first frame in the dataset; None if not listed
    data_path: Path
    videos: Mapping[str, tuple[Path, float]]  # view -> file, and the time of the episode's first frame in it, s


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
