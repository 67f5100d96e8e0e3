"""Human annotations of episodes (subtasks and success), and the interface of their storage."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from embodied_rm.types import Subtask


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """Subtasks and outcome of an episode, as in `Episode`."""

    subtasks: tuple[Subtask, ...] = ()
    success: bool | None = None

    @property
    def version(self) -> str:
        """16 hexadecimal digits; equal annotations have equal versions."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


class AnnotationStore(Protocol):
    """Annotations of the episodes of an `EpisodeSource`, by index. Unreadable files raise `DataError`.

    Files are replaced atomically: a crash leaves the old file or the new one.
    """

    def read(self, index: int) -> Annotation:
        """Return the stored annotation."""
        ...

    def write(self, index: int, annotation: Annotation) -> None:
        """Store an annotation whose subtasks fit the episode, and leave everything else unchanged."""
        ...

    def repair(self) -> tuple[str, ...]:
        """Rewrite duplicated values after a crash between two writes, and return the names of the repaired episodes."""
        ...


def match_subtasks(stored: Sequence[Subtask], subtasks: Sequence[Subtask]) -> list[int | None]:
    """Return per subtask the index of the stored one with equal frames, else with an equal name; None: a new one."""
    unmatched, matches = list(range(len(stored))), []
    for subtask in subtasks:
        same_frames = [i for i in unmatched if (stored[i].start, stored[i].end) == (subtask.start, subtask.end)]
        same_name = [i for i in unmatched if stored[i].name == subtask.name]
        match = next(iter(same_frames + same_name), None)
        matches.append(match)
        if match is not None:
            unmatched.remove(match)
    return matches
