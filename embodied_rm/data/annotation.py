"""Human annotations of episodes (subtasks and success), and the interface of their storage."""

from __future__ import annotations

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
    """Annotations of the episodes of an `EpisodeSource`, by index.

    Files are replaced atomically: a crash leaves the old file or the new one.
    """

    def read(self, index: int) -> Annotation:
        """Return the stored annotation.

        Raises:
            DataError: The file cannot be read; the message names the file and the issue.
        """
        ...

    def write(self, index: int, annotation: Annotation) -> None:
        """Store an annotation and leave everything else unchanged.

        The caller checks that the subtasks fit the episode.

        Raises:
            DataError: As `read`.
            OSError: The file cannot be written.
        """
        ...

    def repair(self) -> tuple[str, ...]:
        """Bring duplicated values back into agreement after a crash between two writes.

        Returns:
            Names of the repaired episodes.
        """
        ...


def match_subtasks(stored: Sequence[Subtask], subtasks: Sequence[Subtask]) -> list[int | None]:
    """Match subtasks with stored ones, by equal frames, else by equal name.

    Extra fields of a matched stored subtask are kept when it is rewritten.

    Returns:
        Per subtask, the index of its stored subtask; None: a new one.
    """
    unmatched, matches = list(range(len(stored))), []
    for subtask in subtasks:
        same_frames = [i for i in unmatched if (stored[i].start, stored[i].end) == (subtask.start, subtask.end)]
        same_name = [i for i in unmatched if stored[i].name == subtask.name]
        match = next(iter(same_frames + same_name), None)
        matches.append(match)
        if match is not None:
            unmatched.remove(match)
    return matches
