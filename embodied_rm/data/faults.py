"""What is wrong with stored episodes: found in one pass, told by file and episode, and none of them believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.errors import DataError

SHOWN = 8
"""Faults that a message spells out; the rest is counted."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing that is wrong."""

    file: Path
    what: str
    """A clause that follows the file's name."""
    episodes: tuple[str, ...]
    """The episodes that cannot be believed because of it, by name."""

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"

    @classmethod
    def told_by(cls, error: DataError, episodes: Sequence[str], file: Path | None = None) -> Fault:
        """What an error says of a file, with whose name such errors begin."""
        begin, _, rest = str(error).partition(": ")
        if file is None:
            return cls(file=Path(begin), what=rest, episodes=tuple(episodes))
        return cls(file=file, what=str(error).removeprefix(f"{file}: "), episodes=tuple(episodes))


def named(faults: Iterable[Fault]) -> tuple[str, ...]:
    """The episodes that some fault concerns, each once, in the order of their faults."""
    return tuple(dict.fromkeys(name for fault in faults for name in fault.episodes))


def shortened(faults: Sequence[Fault]) -> str:
    """All in one line, as far as a reader has patience."""
    more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
    return "; ".join(map(str, faults[:SHOWN])) + more


def refuse_empty(where: Path, kept: Sequence[object], faults: Sequence[Fault]) -> None:
    """Raises `DataError` when faults leave nothing of a dataset."""
    if not kept:
        raise DataError(f"{where}: no episode of it can be used: {shortened(faults)}")


def inside(root: Path, path: Path) -> bool:
    """Whether a path, its links followed, stays in that folder."""
    return path.resolve().is_relative_to(root.resolve())
