"""A run: its folder (config, metrics, artefacts) and the reporter through which verbs show what they do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import UserError

T = TypeVar("T")


class Reporter(Protocol):
    """How a verb speaks to whoever runs it; the command line draws bars and tables, tests stay silent."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """The items, with a progress bar."""
        ...

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        """One aligned two-column table: what was built, or what came out."""
        ...

    def log(self, text: str) -> None:
        """One line of text."""
        ...


class NullReporter:
    """The reporter that shows nothing."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        yield from items

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        return

    def log(self, text: str) -> None:
        return


@dataclass(frozen=True)
class RunFolder:
    """One run's folder. It holds `config.json` from the start and `metrics.json` when finished."""

    path: Path

    @classmethod
    def open(cls, path: Path | str, *, resume: bool = False) -> RunFolder:
        """Create the folder, or continue the run in it when `resume`.

        Raises `UserError` when the folder already holds a run and `resume` is not set.
        """
        folder = Path(path)
        if (folder / "config.json").exists() and not resume:
            raise UserError(
                f"the folder {folder} already holds a run; pass resume=true to continue it, or another out="
            )
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    @property
    def finished(self) -> bool:
        """Whether the run in this folder came to its end."""
        return (self.path / "metrics.json").exists()

    def file_path(self, name: str) -> Path:
        """A path inside the folder, its parent made."""
        path = self.path / name
        assert path.resolve().is_relative_to(self.path.resolve()), f"{name} leads out of the run folder"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write atomically: a reader sees the old file or the new one, never half of one."""
        write_atomic(self.file_path(name), json.dumps(value, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """The JSON object stored under that name."""
        return json.loads((self.path / name).read_text())


def rank_and_env_size() -> tuple[int, int]:
    """Rank and number of the processes that torchrun started, as it tells in the environment; 0 and 1 without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
