"""Issues of stored episodes: all are found in one pass, and affected episodes are excluded, but for notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.errors import DataError, shorten_message

MAX_ENTRY_ISSUES = 1000  # entries of a list with issues of their own
MAX_LISTED_ISSUES = 8  # number of issues that a message lists; the rest is counted


@dataclass(frozen=True, kw_only=True)
class DataIssue:
    """One issue of a dataset."""

    file: Path
    message: str  # clause that follows the file name
    episodes: tuple[str, ...]  # names of the affected episodes
    is_note: bool = False  # whether these episodes are read all the same

    def __str__(self) -> str:
        return shorten_message(f"{self.file}: {self.message}")

    @classmethod
    def from_error(cls, error: DataError, episodes: Sequence[str], file: Path | None = None) -> DataIssue:
        """Convert an error whose message starts with the file name."""
        file_name, _, message = str(error).partition(": ")
        if file is not None:
            file_name, message = str(file), str(error).removeprefix(f"{file}: ")
        return cls(file=Path(file_name), message=message, episodes=tuple(episodes))


class EntryIssues:
    """Issues of the entries of a list: after `MAX_ENTRY_ISSUES`, one issue names all further episodes.

    A list of 20 MB can have ten million entries that are none.
    """

    def __init__(self, file: Path) -> None:
        """`file`: the list."""
        self._file, self._issues, self._further = file, list[DataIssue](), list[str]()

    def add(self, message: str, episode: str) -> None:
        """Add the issue of an entry, which excludes an episode."""
        if len(self._issues) < MAX_ENTRY_ISSUES:
            self._issues.append(DataIssue(file=self._file, message=message, episodes=(episode,)))
        else:
            self._further.append(episode)

    def collect(self) -> list[DataIssue]:
        """Return the issues."""
        if not self._further:
            return self._issues
        message = f"{len(self._further)} further entries cannot be read"
        return [*self._issues, DataIssue(file=self._file, message=message, episodes=tuple(self._further))]


def affected_episodes(issues: Iterable[DataIssue]) -> tuple[str, ...]:
    """Return the names of all episodes that issues exclude, without duplicates, in the order of the issues."""
    return tuple(dict.fromkeys(name for issue in issues if not issue.is_note for name in issue.episodes))


def summarize_issues(issues: Sequence[DataIssue]) -> str:
    """Return the first `MAX_LISTED_ISSUES` issues in one line, with the number of further ones."""
    suffix = f"; and {len(issues) - MAX_LISTED_ISSUES} more" if len(issues) > MAX_LISTED_ISSUES else ""
    return "; ".join(map(str, issues[:MAX_LISTED_ISSUES])) + suffix


def list_names(names: Sequence[str]) -> str:
    """Return the first `MAX_LISTED_ISSUES` names, with the number of further ones."""
    suffix = f" and {len(names) - MAX_LISTED_ISSUES} more" if len(names) > MAX_LISTED_ISSUES else ""
    return ", ".join(names[:MAX_LISTED_ISSUES]) + suffix


def check_not_empty(path: Path, episodes: Sequence[object], issues: Sequence[DataIssue]) -> None:
    """Raise `DataError` if no usable episode is left."""
    if not episodes:
        raise DataError(f"{path}: no episode can be used: {summarize_issues(issues)}")
