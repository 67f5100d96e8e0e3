"""Recordings listed in a table: `episodes.json`, or `episodes.csv` with subtasks in `subtasks.csv`.

episodes.json: [{"name", "instruction", "success", "views": {view: file}, "subtasks": [{"name", "start", "end"}],
"text": {key: value}}]; only `instruction` and `views` are required.
episodes.csv: columns `name`, `instruction`, `success` (true, false or empty) and `text/<key>`; every other column is a
view, with a file per cell.
subtasks.csv: `name` (of the episode), `subtask`, `start`, `end`.
Files are relative to the table's folder and inside it. Frames are counted from 0; `end` is excluded.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from embodied_rm.data.dataset_files import check_file, is_inside, read_json
from embodied_rm.data.issues import DataIssue, EntryIssues, summarize_issues
from embodied_rm.data.lerobot.success_columns import parse_success
from embodied_rm.data.recordings.recording import Recording, parse_subtask
from embodied_rm.errors import DataError
from embodied_rm.text_file import read_text

JSON_TABLE = "episodes.json"
CSV_TABLE = "episodes.csv"
CSV_SUBTASKS = "subtasks.csv"
METADATA_PREFIX = "text/"
EPISODE_COLUMNS = ("name", "instruction", "success")
MAX_CELLS = 10_000_000  # rows times columns: a row of one character has a cell for each column of the header


def read_table(folder: Path) -> tuple[list[Recording], list[DataIssue]]:
    """Read the recordings of the table in a folder, and the issues of the others."""
    path = folder / JSON_TABLE
    is_json = path.exists()
    entries: Iterable[Any] = read_json(path, "JSON", list) if is_json else _read_csv_entries(folder)
    recordings: list[Recording] = []
    issues = EntryIssues(path if is_json else folder / CSV_TABLE)
    for index, entry in enumerate(entries):
        name = _entry_name(entry, index)
        try:
            recordings.append(replace(_parse_recording(folder, name, entry), episode_index=index))
        except DataError as error:
            issues.add(f"entry {index} ({name}): {error}", name)
    return recordings, issues.collect()


def read_table_entry(folder: Path, name: str) -> Recording:
    """Return the recording with a name in the table of a folder."""
    recordings, issues = read_table(folder)
    for recording in recordings:
        if recording.name == name:
            return recording
    raise DataError(f"{folder}: its table no longer lists a readable {name}; {summarize_issues(issues)}")


def _entry_name(entry: Any, index: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) and name else f"episode_{index:06d}"


def _parse_recording(folder: Path, name: str, entry: Any) -> Recording:
    """Parse one entry. A `DataError` holds only a clause with the issue."""
    if not isinstance(entry, dict):
        raise DataError("an object was expected")
    instruction, views, success = (entry.get(key) for key in ("instruction", "views", "success"))
    if not isinstance(instruction, str) or not instruction.strip():
        raise DataError(f"instruction is {instruction!r}")
    if not isinstance(views, dict) or not views:
        raise DataError("it names no views")
    metadata, subtasks = entry.get("text") or {}, entry.get("subtasks") or []
    if not isinstance(metadata, dict) or not isinstance(subtasks, list):
        raise DataError(f"text must be an object and subtasks a list, got {metadata!r} and {subtasks!r}")
    return Recording(
        name=name,
        videos={str(view): _resolve_file(folder, file) for view, file in views.items()},
        instruction=instruction,
        subtasks=tuple(parse_subtask(subtask, ("name", "start", "end"), "a subtask") for subtask in subtasks),
        success=_parse_success(success),
        metadata={str(key): str(value) for key, value in metadata.items()},
    )


def _parse_success(value: Any) -> bool | None:
    try:
        if type(value) is int:  # a count or a score; the flags that pandas writes are floats, beside missing ones
            raise ValueError
        return parse_success(value)
    except ValueError:
        raise DataError(f"success is {value!r}; true, false or nothing was expected") from None


def _resolve_file(folder: Path, file: Any) -> Path:
    if not isinstance(file, str) or not file:
        raise DataError(f"a file is {file!r}")
    path = folder / file
    try:
        is_within = is_inside(folder, path)
        path.exists()
    except (OSError, ValueError) as error:
        raise DataError(f"a file is {file[:60]!r} ({error})") from None
    if not is_within:
        raise DataError(f"{file!r} leads out of the folder")
    return path


def _read_csv_entries(folder: Path) -> Iterator[dict[str, Any]]:
    """Convert the rows of `episodes.csv` to entries of `episodes.json`, one at a time."""
    subtasks: dict[str, list[Mapping[str, str]]] = {}
    if (folder / CSV_SUBTASKS).exists():
        for row in _read_csv_rows(folder / CSV_SUBTASKS, ("name", "subtask", "start", "end")):
            subtasks.setdefault(row["name"], []).append({**row, "name": row["subtask"]})
    for index, row in enumerate(_read_csv_rows(folder / CSV_TABLE, ("instruction",))):
        name = _entry_name(row, index)
        cells = {key: cell for key, cell in row.items() if cell and key not in EPISODE_COLUMNS}
        text = {key.removeprefix(METADATA_PREFIX): c for key, c in cells.items() if key.startswith(METADATA_PREFIX)}
        views = {key: cell for key, cell in cells.items() if not key.startswith(METADATA_PREFIX)}
        entry = {"name": name, "instruction": row["instruction"], "success": row.get("success"), "views": views}
        yield {**entry, "text": text, "subtasks": subtasks.pop(name, [])}
    if subtasks:
        names = ", ".join(subtasks)
        raise DataError(f"{folder / CSV_SUBTASKS}: has subtasks of {names}, which {CSV_TABLE} does not list")


def _read_csv_rows(path: Path, required: tuple[str, ...]) -> Iterator[dict[str, str]]:
    check_file(path, "table")
    stream = io.StringIO(read_text(path).removeprefix("\ufeff"), newline="")
    try:
        csv_reader = csv.DictReader(stream, restval="", strict=True)
        columns = csv_reader.fieldnames or ()
        for column in required:
            if column not in columns:
                raise DataError(f"{path}: column {column} is missing")
        for number, row in enumerate(csv_reader, start=1):
            if None in row:
                raise DataError(f"{path}: line {number + 1} has more cells than the header")
            if number * len(columns) > MAX_CELLS:
                raise DataError(f"{path}: has more than {MAX_CELLS} cells")
            yield row
    except csv.Error as error:
        raise DataError(f"{path}: cannot be read as a table ({error})") from None
