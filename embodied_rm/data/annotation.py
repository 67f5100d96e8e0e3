"""What a person says of an episode: its steps, and whether it succeeded; and where that is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from embodied_rm.types import Subtask


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """The steps of an episode and its outcome, as `Episode` has them."""

    subtasks: tuple[Subtask, ...] = ()
    success: bool | None = None

    @property
    def version(self) -> str:
        """16 letters, the same for what says the same."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


class AnnotationStore(Protocol):
    """The annotations of the episodes of an `EpisodeSource`, by their place in it.

    Files are replaced, never written into: a crash leaves the old or the new one.
    """

    def read(self, index: int) -> Annotation:
        """What is stored now. Raises `DataError` naming the file and its fault."""
        ...

    def write(self, index: int, annotation: Annotation) -> None:
        """Store it, and leave all else as it is. Raises `DataError` as `read` does, `OSError` where nothing can be
        written. Whether the steps fit the episode is the caller's to know."""
        ...

    def repair(self) -> tuple[str, ...]:
        """Finish what a crash interrupted between two files that say the same; the episodes that were."""
        ...


def match_subtasks(stored: Sequence[Subtask], subtasks: Sequence[Subtask]) -> list[int | None]:
    """For each step the stored one that it was, by the same frames or else by the same name: what else is said of that
    one is kept. None: a new one."""
    unmatched, matches = list(range(len(stored))), []
    for subtask in subtasks:
        same_frames = [i for i in unmatched if (stored[i].start, stored[i].end) == (subtask.start, subtask.end)]
        same_name = [i for i in unmatched if stored[i].name == subtask.name]
        match = next(iter(same_frames + same_name), None)
        matches.append(match)
        if match is not None:
            unmatched.remove(match)
    return matches
