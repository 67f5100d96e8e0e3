"""Recordings listed in a table: `episodes.json`, or `episodes.csv` with the steps in `steps.csv`.

episodes.json: [{"name", "instruction", "success", "views": {view: file}, "steps": [{"name", "start", "end"}]}]; of an
episode only `instruction` and `views` are needed. episodes.csv: columns `name`, `instruction`, `success` (true, false
or empty), `text/<key>`; every other column is a view, its cells files. steps.csv: `name` (of the episode), `step`,
`start`, `end`. Files are relative to the table's folder and lie in it; frames are counted from 0, `end` excluded.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.data.faults import Fault, inside, shortened
from embodied_rm.data.json_file import read_json
from embodied_rm.data.recordings.recording import Recording
from embodied_rm.data.video.mp4 import check_file
from embodied_rm.errors import DataError, UserError
from embodied_rm.types import Step

JSON_TABLE, CSV_TABLE, CSV_STEPS = "episodes.json", "episodes.csv", "steps.csv"
TEXT = "text/"
KNOWN = ("name", "instruction", "success")
TRUTH = {"true": True, "false": False, "1": True, "0": False, "": None}


def listed(folder: Path) -> tuple[list[Recording], list[Fault]]:
    """The recordings of the table in a folder, and what is wrong with others.

    Raises `DataError` when the table cannot be read.
    """
    path = folder / JSON_TABLE
    if path.exists():
        entries = read_json(path, "JSON", list)
    else:
        path = folder / CSV_TABLE
        entries = _csv_entries(folder)
    found: list[Recording] = []
    faults: list[Fault] = []
    for i, entry in enumerate(entries):
        name = _name(entry, i)
        try:
            found.append(replace(_recording(folder, name, entry), number=i))
        except DataError as error:
            faults.append(Fault(file=path, what=f"entry {i} ({name}): {error}", episodes=(name,)))
    return found, faults


def listed_as(folder: Path, name: str) -> Recording:
    """The recording of that name in the table of a folder. Raises `DataError` where it cannot be read any more."""
    found, faults = listed(folder)
    for recording in found:
        if recording.name == name:
            return recording
    raise DataError(f"{folder}: its table lists no {name} that can be read any more; {shortened(faults)}")


def _name(entry: Any, i: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"episode_{i:06d}"


def _recording(folder: Path, name: str, entry: Any) -> Recording:
    """Raises `DataError` with a clause that says what is wrong with the entry."""
    if not isinstance(entry, dict):
        raise DataError("an object was expected")
    instruction, views, success = entry.get("instruction"), entry.get("views"), entry.get("success")
    if not isinstance(instruction, str) or not instruction:
        raise DataError(f"instruction is {instruction!r}")
    if success not in (None, True, False) or (isinstance(success, int) and not isinstance(success, bool)):
        raise DataError(f"success is {success!r}; true, false or nothing was expected")
    if not isinstance(views, dict) or not views:
        raise DataError("it names no views")
    text, steps = entry.get("text") or {}, entry.get("steps") or []
    if not isinstance(text, dict) or not isinstance(steps, list):
        raise DataError(f"text must be an object and steps a list, got {text!r} and {steps!r}")
    return Recording(
        name=name,
        videos={str(view): _file(folder, file) for view, file in views.items()},
        instruction=instruction,
        steps=tuple(_step(step) for step in steps),
        success=success,
        text={str(key): str(value) for key, value in text.items()},
    )


def _file(folder: Path, file: Any) -> Path:
    if not isinstance(file, str) or not file:
        raise DataError(f"a file is {file!r}")
    path = folder / file
    try:
        within = inside(folder, path)
        path.exists()
    except (OSError, ValueError) as error:
        raise DataError(f"a file is {file[:60]!r} ({error})") from None
    if not within:
        raise DataError(f"{file!r} leads out of the folder")
    return path


def _step(step: Any) -> Step:
    try:
        return Step(name=str(step["name"]), start=int(step["start"]), end=int(step["end"]))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(str(error) if isinstance(error, UserError) else f"a step lacks or misstates {error}") from None


def _csv_entries(folder: Path) -> list[dict[str, Any]]:
    """The lines of `episodes.csv` as `episodes.json` would have them."""
    steps: dict[str, list[Mapping[str, str]]] = {}
    if (folder / CSV_STEPS).exists():
        for row in _csv_rows(folder / CSV_STEPS, ("name", "step", "start", "end")):
            steps.setdefault(row["name"], []).append({**row, "name": row["step"]})
    entries = []
    for i, row in enumerate(_csv_rows(folder / CSV_TABLE, ("instruction",))):
        name = _name(row, i)
        entries.append(
            {
                "name": name,
                "instruction": row["instruction"],
                "success": TRUTH.get(row.get("success", "").strip().lower(), row.get("success")),
                "views": {k: v for k, v in row.items() if k not in KNOWN and not k.startswith(TEXT) and v},
                "steps": steps.pop(name, []),
                "text": {k.removeprefix(TEXT): v for k, v in row.items() if k.startswith(TEXT) and v},
            }
        )
    if steps:
        raise DataError(f"{folder / CSV_STEPS}: has steps of {', '.join(steps)}, which {CSV_TABLE} does not list")
    return entries


def _csv_rows(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    check_file(path, "table")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream, restval="", strict=True)
            for column in needed:
                if column not in (reader.fieldnames or ()):
                    raise DataError(f"{path}: column {column} is missing")
            rows = list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a table ({error})") from None
    for i, row in enumerate(rows):
        if None in row:
            raise DataError(f"{path}: line {i + 2} has more cells than the first line has names")
    return rows
