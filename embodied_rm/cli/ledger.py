"""Finished cells of a long experiment, as data beside the page that tells of them.

A run folder stays on the machine that made it. A ledger is committed with its page: what one machine has measured,
another reads, and an experiment of ten hours can be ten sessions of one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from embodied_rm.cli.benchmarks import beside, machine
from embodied_rm.errors import DataError
from embodied_rm.run import write_atomic

SOURCE = Path(__file__).resolve().parents[2]
"""Where the packages lie."""


def ledger_of(page: Path | None, name: str = "") -> Ledger:
    """The ledger beside a page, of the comparison `name` where a page has several; one that keeps nothing for None."""
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

    def write(self, cell: str, settings: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep what came out of a cell, in the place of what an earlier one of its name said."""
        if self.path is None:
            return
        known = {"settings": _digest(settings), "code": code(), "date": date.today().isoformat(), "machine": machine()}
        line = {**known, "result": result}
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


def _digest(settings: Mapping[str, Any]) -> str:
    """Of what JSON makes of the settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:16]
