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
from embodied_rm.cli.benchmarks import beside, machine
from embodied_rm.errors import DataError, UserError
from embodied_rm.run import RunFolder

SOURCE = Path(__file__).resolve().parents[2]
"""Where the packages lie."""
BEGUN = "cell.json"
"""In a folder in which a cell is measured: what decides it."""


def ledger_of(page: Path | None, name: str = "") -> Ledger:
    """The ledger beside a page, of the comparison `name` where a page has several; one that keeps nothing for None."""
    code()  # of what runs now, whatever is edited while it does
    return Ledger(page and beside(page, name, ".jsonl"))


@dataclass(frozen=True)
class Ledger:
    """JSON Lines, one cell each: its name, the digests of all that decides it and of the code, date, machine, and what
    came out.

    `path`: None for one that knows nothing and keeps nothing.
    """

    path: Path | None

    def read(self, cell: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """What came out of a cell; None where it was never measured, or under other settings."""
        line = self._lines().get(cell)
        return line["result"] if line is not None and line["settings"] == _digest(settings) else None

    def cell(
        self, cell: str, settings: Mapping[str, Any], folder: Path, measure: Callable[[], Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """What came out of a cell: read where it is known, else measured in its folder and kept.

        Raises `UserError` for a folder in which another cell was begun.
        """
        known = self.read(cell, settings)
        if known is not None:
            return known
        begun = begun_in(folder, settings)
        result = measure()
        self.write(cell, settings, result, begun)
        return result

    def write(
        self, cell: str, settings: Mapping[str, Any], result: Mapping[str, Any], version: str | None = None
    ) -> None:
        """Keep what came out of a cell, in the place of what an earlier one of its name said. `version`: of the code
        that measured it, default this one."""
        if self.path is None:
            return
        known = {"settings": _digest(settings), "code": version or code()}
        line = {**known, "date": date.today().isoformat(), "machine": machine(), "result": result}
        lines = {**self._lines(), cell: line}
        text = "".join(json.dumps({"cell": name, **each}, allow_nan=False) + "\n" for name, each in lines.items())
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, text)

    def versions(self, cells: Sequence[str]) -> int:
        """How many versions of the code measured these cells, which are all in it; 1 for one that keeps nothing."""
        lines = self._lines()
        return len({lines[cell]["code"] for cell in cells if cell in lines}) or 1

    def _lines(self) -> dict[str, dict[str, Any]]:
        """Cell -> the rest of its line."""
        if self.path is None or not self.path.exists():
            return {}
        return dict(self._parsed(number, text) for number, text in enumerate(self.path.read_text().splitlines(), 1))

    def _parsed(self, number: int, text: str) -> tuple[str, dict[str, Any]]:
        try:
            line = json.loads(text)
            return line.pop("cell"), {key: line[key] for key in ("settings", "code", "date", "machine", "result")}
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise DataError(f"{self.path}, line {number}: not a measured cell ({error}); delete that line") from error


@cache
def code() -> str:
    """Digest of the package's own source."""
    digest = hashlib.sha256()
    for path in sorted([*SOURCE.glob("embodied_rm/**/*.py"), *SOURCE.glob("sim/**/*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def begun_in(folder: Path, settings: Mapping[str, Any]) -> str:
    """The version of the code that began a measurement in a folder, which is this one where nothing was begun.

    Raises `UserError` when what was begun there is decided by something else: a run folder knows its configuration, but
    not which model or data were meant by it.
    """
    run, now = RunFolder(folder), {"settings": _digest(settings), "code": code()}
    if not (folder / BEGUN).exists():
        run.write_json(BEGUN, now)
    begun = run.read_json(BEGUN)
    if begun["settings"] != now["settings"]:
        raise UserError(
            f"what is in {folder} was begun under other settings, or with another model or other data: name another "
            "out=, or delete it"
        )
    return str(begun["code"])


def _digest(settings: Mapping[str, Any]) -> str:
    """Of what JSON makes of the settings, nothing being what a setting is that is not there."""
    return hashlib.sha256(json.dumps(_said(settings), sort_keys=True, default=str).encode()).hexdigest()[:16]


def _said(settings: Any) -> Any:
    if isinstance(settings, Mapping):
        return {str(name): _said(value) for name, value in settings.items() if value is not None}
    return [_said(one) for one in settings] if isinstance(settings, (list, tuple)) else settings
