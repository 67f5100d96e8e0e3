"""Finished cells of a long experiment, as data beside the page that tells of them.

A run folder stays on the machine that made it. A ledger is committed with its page: what one machine has measured,
another reads, and an experiment of ten hours can be ten sessions of one.
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

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.results_page import companion_path, describe_machine
from embodied_rm.run_folder import RunFolder

SOURCE_DIR = Path(__file__).resolve().parents[2]
"""Where the packages lie."""
CELL_FILE = "cell.json"
"""In a folder in which a cell is measured: what decides it."""


def open_results_cache(page: Path | None, name: str = "") -> ResultsCache:
    """The ledger beside a page, of the comparison `name` where a page has several; one that keeps nothing for None."""
    code_digest()  # of what runs now, whatever is edited while it does
    return ResultsCache(page and companion_path(page, name, ".jsonl"))


@dataclass(frozen=True)
class ResultsCache:
    """JSON Lines, one cell each: its name, the digests of all that decides it and of the code, date, machine, and what
    came out.

    `path`: None for one that knows nothing and keeps nothing.
    """

    path: Path | None

    def read(self, cell: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """What came out of a cell; None where it was never measured, or under other settings."""
        record = self._lines().get(cell)
        return record["result"] if record is not None and record["settings"] == _settings_digest(settings) else None

    def get_or_measure(
        self, cell: str, settings: Mapping[str, Any], folder: Path, measure: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """What came out of a cell: read where it is known, else measured in its folder and kept.

        Raises `UserError` for a folder in which another cell was begun.
        """
        cached = self.read(cell, settings)
        if cached is not None:
            return cached
        code_version = begin_cell(folder, settings)
        result = measure()
        self.write(cell, settings, result, code_version)
        return result

    def write(
        self, cell: str, settings: Mapping[str, Any], result: Mapping[str, Any], code_version: str | None = None
    ) -> None:
        """Keep what came out of a cell, in the place of what an earlier one of its name said. `version`: of the code
        that measured it, default this one."""
        if self.path is None:
            return
        header = {"settings": _settings_digest(settings), "code": code_version or code_digest()}
        record = {**header, "date": date.today().isoformat(), "machine": describe_machine(), "result": result}
        records = {**self._lines(), cell: record}
        text = "".join(
            json.dumps({"cell": name, **record_fields}, allow_nan=False) + "\n"
            for name, record_fields in records.items()
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, text)

    def count_code_versions(self, cells: Sequence[str]) -> int:
        """How many versions of the code measured these cells, which are all in it; 1 for one that keeps nothing."""
        records = self._lines()
        return len({records[cell]["code"] for cell in cells if cell in records}) or 1

    def _lines(self) -> dict[str, dict[str, Any]]:
        """Cell -> the rest of its line."""
        if self.path is None or not self.path.exists():
            return {}
        return dict(self._parse_line(number, text) for number, text in enumerate(self.path.read_text().splitlines(), 1))

    def _parse_line(self, line_number: int, text: str) -> tuple[str, dict[str, Any]]:
        try:
            record = json.loads(text)
            return record.pop("cell"), {key: record[key] for key in ("settings", "code", "date", "machine", "result")}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise DataError(
                f"{self.path}, line {line_number}: not a measured cell ({error}); delete that line"
            ) from error


@cache
def code_digest() -> str:
    """Digest of the package's own source."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCE_DIR.glob("embodied_rm/**/*.py"), *SOURCE_DIR.glob("sim/**/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def begin_cell(folder: Path, settings: Mapping[str, Any]) -> str:
    """The version of the code that began a measurement in a folder, which is this one where nothing was begun.

    Raises `UserError` when what was begun there is decided by something else: a run folder knows its configuration, but
    not which model or data were meant by it.
    """
    run, current = RunFolder(folder), {"settings": _settings_digest(settings), "code": code_digest()}
    if not (folder / CELL_FILE).exists():
        run.write_json(CELL_FILE, current)
    stored = run.read_json(CELL_FILE)
    if stored["settings"] != current["settings"]:
        raise UserError(
            f"what is in {folder} was begun under other settings, or with another model or other data: name another "
            "out=, or delete it"
        )
    return str(stored["code"])


def _settings_digest(settings: Mapping[str, Any]) -> str:
    """Of what JSON makes of the settings, nothing being what a setting is that is not there."""
    return hashlib.sha256(json.dumps(_without_none(settings), sort_keys=True, default=str).encode()).hexdigest()[:16]


def _without_none(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        return {str(name): _without_none(value) for name, value in settings.items() if value is not None}
    return [_without_none(item) for item in settings] if isinstance(settings, (list, tuple)) else settings
