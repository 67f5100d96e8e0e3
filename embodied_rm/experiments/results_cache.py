"""Finished cells of a long experiment, stored as JSON Lines next to its results page and committed with it.

Another machine or session reads finished cells from there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from embodied_rm.atomic_file import update_in_turn, write_atomic
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.results_page import companion_path, describe_machine
from embodied_rm.run_folder import RunFolder
from embodied_rm.text_file import read_text

SOURCE_DIR = Path(__file__).resolve().parents[2]  # folder of the packages
CELL_FILE = "cell.json"  # file in the folder of a cell: digests of its settings and of the code


def open_results_cache(page: Path | None, name: str = "") -> ResultsCache:
    """Open the results cache of a page and, if it has several, of the comparison `name`; None: nothing is stored."""
    code_digest()  # cached now: the source may be edited while this runs
    return ResultsCache(page and companion_path(page, name, ".jsonl"))


@dataclass(frozen=True)
class ResultsCache:
    """JSON Lines with one cell per line: name, digests of its settings and of the code, date, machine and result.

    `path` is None for a cache that stores nothing.
    """

    path: Path | None

    def read(self, cell: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a cell; None if it was not measured under these settings."""
        record = self._lines().get(cell)
        return record["result"] if record is not None and record["settings"] == _settings_digest(settings) else None

    def get_or_measure(
        self, cell: str, settings: Mapping[str, Any], folder: Path, measure: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """Return the stored result of a cell, or measure it in its folder (see `begin_cell`) and store it."""
        if (cached := self.read(cell, settings)) is not None:
            return cached
        code_version = begin_cell(folder, settings)
        result = measure()
        self.write(cell, settings, result, code_version)
        return result

    def write(
        self, cell: str, settings: Mapping[str, Any], result: Mapping[str, Any], code_version: str | None = None
    ) -> None:
        """Store the result of a cell, replacing an earlier one; `code_version` defaults to the current code."""
        if self.path is None:
            return
        header = {"settings": _settings_digest(settings), "code": code_version or code_digest()}
        record = {**header, "date": date.today().isoformat(), "machine": describe_machine(), "result": result}
        with update_in_turn(self.path):
            records = {**self._lines(), cell: record}
            lines = [json.dumps({"cell": name, **values}, allow_nan=False) + "\n" for name, values in records.items()]
            write_atomic(self.path, "".join(lines))

    def count_code_versions(self, cells: Sequence[str]) -> int:
        """Return the number of code versions that measured these cells, at least 1."""
        records = self._lines()
        return len({records[cell]["code"] for cell in cells if cell in records}) or 1

    def _lines(self) -> dict[str, dict[str, Any]]:
        """Return cell -> the rest of its line."""
        if self.path is None or not self.path.exists():
            return {}
        lines = enumerate(read_text(self.path).split("\n"), 1)
        return dict(self._parse_line(number, text) for number, text in lines if text)

    def _parse_line(self, line_number: int, text: str) -> tuple[str, dict[str, Any]]:
        try:
            record = json.loads(text)
            return record.pop("cell"), {key: record[key] for key in ("settings", "code", "date", "machine", "result")}
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise DataError(
                f"{self.path}, line {line_number}: not a measured cell ({error}); delete that line"
            ) from error


@cache
def code_digest() -> str:
    """Return a digest of the source of both packages."""
    digest = hashlib.sha256()
    packages = ("embodied_rm", "sim/embodied_sim", "embodied_sim")
    for path in sorted(path for package in packages for path in SOURCE_DIR.glob(f"{package}/**/*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def begin_cell(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return the digest of the code that began the cell in a folder; begin it if needed.

    Raises `UserError` if the cell there has other settings: a run folder does not store the model and data of paths.
    """
    run, current = RunFolder(folder), {"settings": _settings_digest(settings), "code": code_digest()}
    if not (folder / CELL_FILE).exists():
        run.write_json(CELL_FILE, current)
    stored = run.read_json(CELL_FILE)
    if stored["settings"] != current["settings"]:
        raise UserError(
            f"the run in {folder} was begun under other settings, or with another model or other data: name another "
            "out=, or delete it"
        )
    return str(stored["code"])


def _settings_digest(settings: Mapping[str, Any]) -> str:
    """Return a digest of the settings as JSON; None counts as missing, so a new optional setting keeps old digests."""
    return hashlib.sha256(json.dumps(_without_none(settings), sort_keys=True, default=str).encode()).hexdigest()[:16]


def _without_none(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        return {str(name): _without_none(value) for name, value in settings.items() if value is not None}
    return [_without_none(item) for item in settings] if isinstance(settings, (list, tuple)) else settings
