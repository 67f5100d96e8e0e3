"""What is wrong with stored episodes: found in one pass, told by file and episode, and none of them believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.errors import DataError

MAX_LISTED_ISSUES = 8
"""Faults that a message spells out; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class DataIssue:
    """One thing that is wrong."""

    file: Path
    message: str
    """A clause that follows the file's name."""
    episodes: tuple[str, ...]
    """The episodes that cannot be believed because of it, by name."""

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"

    @classmethod
    def from_error(cls, error: DataError, episodes: Sequence[str], file: Path | None = None) -> DataIssue:
        """What an error says of a file, with whose name such errors begin."""
        file_name, _, message = str(error).partition(": ")
        if file is None:
            return cls(file=Path(file_name), message=message, episodes=tuple(episodes))
        return cls(file=file, message=str(error).removeprefix(f"{file}: "), episodes=tuple(episodes))


def affected_episodes(issues: Iterable[DataIssue]) -> tuple[str, ...]:
    """The episodes that some fault concerns, each once, in the order of their faults."""
    return tuple(dict.fromkeys(name for issue in issues for name in issue.episodes))


def summarize_issues(issues: Sequence[DataIssue]) -> str:
    """All in one line, as far as a reader has patience."""
    suffix = f"; and {len(issues) - MAX_LISTED_ISSUES} more" if len(issues) > MAX_LISTED_ISSUES else ""
    return "; ".join(map(str, issues[:MAX_LISTED_ISSUES])) + suffix


def check_not_empty(path: Path, episodes: Sequence[object], issues: Sequence[DataIssue]) -> None:
    """Raises `DataError` when faults leave nothing of a dataset."""
    if not episodes:
        raise DataError(f"{path}: no episode of it can be used: {summarize_issues(issues)}")


def is_inside(folder: Path, path: Path) -> bool:
    """Whether a path, its links followed, stays in that folder."""
    return path.resolve().is_relative_to(folder.resolve())
