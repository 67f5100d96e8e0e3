"""The episodes that a LeRobot dataset lists, whichever version it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.data.faults import Fault
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Row:
    """One episode and the files that hold it."""

    index: int
    meta: EpisodeMeta
    start: int | None
    """Its first row in the dataset's frames; None where the list does not say."""
    data: Path
    videos: Mapping[str, tuple[Path, float]]
    """View -> file, and the time in it of the first frame, s."""


MOST_MISSING = 10_000
"""Episodes that may be missing for a dataset to be one with gaps, and not another one's description."""


def usual_name(index: int) -> str:
    """What an episode is called that has no name of its own."""
    return f"episode_{index:06d}"


def order_faults(listing: Path, rows: Sequence[Row], known: Collection[int], total: int) -> list[Fault]:
    """Episodes that should be among the rows and are not, or are there more than once.

    `known`: the indices of those whose entry is wrong and was found so; `total`: how many `info.json` states.
    """
    faults = []
    for index, count in sorted(Counter(row.index for row in rows).items()):
        names = tuple(dict.fromkeys(row.meta.name for row in rows if row.index == index))
        if count > 1:
            faults.append(Fault(file=listing, what=f"episode {index} is listed {count} times", episodes=names))
        elif not 0 <= index < total:
            what = f"episode {index} is listed, where info.json states {total} episodes"
            faults.append(Fault(file=listing, what=what, episodes=names))
    for name, count in Counter(row.meta.name for row in rows if row.meta.name != usual_name(row.index)).items():
        if count > 1:
            faults.append(Fault(file=listing, what=f"{count} episodes have the name {name}", episodes=(name,)))
    there = {row.index for row in rows} | set(known)
    if total > len(there) + MOST_MISSING:
        raise DataError(f"{listing}: lists {len(there)} episodes, info.json states {total}")
    return faults + [
        Fault(file=listing, what=f"episode {index} is not listed", episodes=(usual_name(index),))
        for index in range(total)
        if index not in there
    ]
