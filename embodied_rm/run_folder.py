"""A run: its folder (config, metrics, artifacts), and the reporter through which commands display their output."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import UserError
from embodied_rm.run_lock import lock_folder
from embodied_rm.text_file import read_text

T = TypeVar("T")
EPISODES_DIR = "episodes"  # of files that are named after episodes


class Reporter(Protocol):
    """Displays the output of a command. The command line draws bars and tables; tests display nothing."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        """Iterate over the items and display a progress bar."""
        ...

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        """Display an aligned two-column table."""
        ...

    def log(self, text: str) -> None:
        """Display one line of text."""
        ...


class NullReporter:
    """The reporter that displays nothing."""

    def track(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
        yield from items

    def table(self, title: str, rows: Mapping[str, object]) -> None:
        return

    def log(self, text: str) -> None:
        return


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. It holds `config.json` from the start and `metrics.json` after the run has finished."""

    path: Path
    is_continued: bool = False  # whether the folder held the run before it was opened

    @classmethod
    def open(cls, path: Path | str, *, resume: bool = False) -> RunFolder:
        """Create the folder; one that already holds a run needs `resume`, which continues the run."""
        folder = Path(path)
        is_continued = (folder / "config.json").exists()
        if is_continued and not resume:
            raise UserError(
                f"the folder {folder} already holds a run; pass resume=true to continue it, or another out="
            )
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, is_continued)

    @property
    def finished(self) -> bool:
        """Whether the run in this folder has finished."""
        return (self.path / "metrics.json").is_file()

    def discard(self) -> None:
        """Make the folder one that holds no run, because its command refused to begin."""
        (self.path / "config.json").unlink(missing_ok=True)

    def file_path(self, name: str) -> Path:
        """Return a path inside the folder and create its parent folder."""
        path = self.path / name
        assert path.resolve().is_relative_to(self.path.resolve()), f"{name} leads out of the run folder"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def episode_path(self, name: str, suffix: str) -> Path:
        """Return the path of a file of an episode: no name of an episode is that of a file of the run."""
        return self.file_path(f"{EPISODES_DIR}/{name}{suffix}")

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write atomically: readers see the old file or the new one, never a partial file."""
        write_atomic(self.file_path(name), json.dumps(value, indent=2, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the JSON object stored under that name."""
        path = self.path / name
        try:
            value = json.loads(read_text(path))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UserError(f"{path}: is damaged, it holds no JSON object: name another out=, or delete {self.path}")
        return value


@contextmanager
def open_kept_or_temporary(path: Path | str | None) -> Iterator[RunFolder]:
    """Open a run folder to continue the run in it; for None, one that is deleted at the end."""
    if path is not None:
        run = RunFolder.open(path, resume=True)
        with lock_folder(run.path):
            yield run
        return
    with tempfile.TemporaryDirectory() as temporary:
        yield RunFolder.open(temporary)
