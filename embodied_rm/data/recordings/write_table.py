"""Write annotations to a table of recordings, `episodes.json` or `episodes.csv` with `subtasks.csv`.

In a CSV table only the lines of the episode are rewritten; all other bytes are kept.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from embodied_rm.data.annotation import Annotation, match_subtasks
from embodied_rm.data.dataset_files import dump_json_like, write_inside
from embodied_rm.data.recordings.recording import Recording
from embodied_rm.data.recordings.table import CSV_SUBTASKS, CSV_TABLE, JSON_TABLE, read_table_entry
from embodied_rm.types import Subtask

SUCCESS_TEXT = {True: "true", False: "false", None: ""}
SUBTASKS_HEADER = "name,subtask,start,end\n"
BOM, NEWLINE_CHARS = "\ufeff", "\r\n"


class TableAnnotationStore:
    """The annotations of the recordings `names` in the table of a folder, an `AnnotationStore`."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, tuple(names)
        self._update = update_json if (folder / JSON_TABLE).exists() else update_csv

    def read(self, index: int) -> Annotation:
        """See `AnnotationStore.read`."""
        return _to_annotation(read_table_entry(self._folder, self._names[index]))

    def write(self, index: int, annotation: Annotation) -> None:
        """See `AnnotationStore.write`. For a CSV table the file of outcomes is written first."""
        self._update(self._folder, read_table_entry(self._folder, self._names[index]), annotation)

    def repair(self) -> tuple[str, ...]:
        """Return nothing: no value is stored twice."""
        return ()


def _to_annotation(recording: Recording) -> Annotation:
    assert not isinstance(recording.subtasks, Path)
    return Annotation(subtasks=recording.subtasks, success=recording.success)


def update_json(folder: Path, recording: Recording, annotation: Annotation) -> None:
    """Write the changes of an annotation to `episodes.json`."""
    path, stored = folder / JSON_TABLE, _to_annotation(recording)
    text = path.read_bytes().decode()
    entries = json.loads(text)
    assert recording.episode_index is not None
    entry = entries[recording.episode_index]
    if annotation.success != stored.success:
        entry["success"] = annotation.success
    if annotation.subtasks != stored.subtasks:
        entry["subtasks"] = _merge_entries(entry.get("subtasks") or [], stored.subtasks, annotation.subtasks)
    if annotation != stored:
        write_inside(folder, path, dump_json_like(text, entries))


def update_csv(folder: Path, recording: Recording, annotation: Annotation) -> None:
    """Write the changes of an annotation to `episodes.csv` and `subtasks.csv`."""
    stored = _to_annotation(recording)
    if annotation.success != stored.success:
        assert recording.episode_index is not None
        table = CsvTable.parse((folder / CSV_TABLE).read_bytes().decode())
        row = table.rows[recording.episode_index] | {"success": SUCCESS_TEXT[annotation.success]}
        table.replace_rows(recording.episode_index, recording.episode_index + 1, [row])
        write_inside(folder, folder / CSV_TABLE, table.text)
    if annotation.subtasks != stored.subtasks:
        path = folder / CSV_SUBTASKS
        table = CsvTable.parse(path.read_bytes().decode() if path.exists() else SUBTASKS_HEADER)
        row_indices = [row_index for row_index, row in enumerate(table.rows) if row["name"] == recording.name]
        entries = [table.rows[row_index] for row_index in row_indices]
        new_entries = _merge_entries(entries, stored.subtasks, annotation.subtasks, name_key="subtask")
        first_row = row_indices[0] if row_indices else len(table.rows)
        for row_index in reversed(row_indices):
            table.replace_rows(row_index, row_index + 1, [])
        table.replace_rows(first_row, first_row, [{**row, "name": recording.name} for row in new_entries])
        write_inside(folder, path, table.text)


def _merge_entries(
    entries: Sequence[Mapping[str, Any]], stored: Sequence[Subtask], subtasks: Sequence[Subtask], name_key: str = "name"
) -> list[dict[str, Any]]:
    """Build one entry per subtask; extra fields of matched stored entries are kept."""
    matches = zip(subtasks, match_subtasks(stored, subtasks), strict=True)
    pairs = [(subtask, {} if index is None else entries[index]) for subtask, index in matches]
    return [{**entry, name_key: s.name, "start": s.start, "end": s.end} for s, entry in pairs]


@dataclass
class CsvTable:
    """A CSV table that keeps the original text of each row."""

    header: list[str]
    rows: list[dict[str, str]]
    lines: list[str]  # original text of the header and of each row, including the empty lines after it

    @classmethod
    def parse(cls, text: str) -> CsvTable:
        """Parse a table that `read_table` has accepted."""
        raw_lines = io.StringIO(text, newline="").readlines()
        reader, lines_read = csv.reader(raw_lines, strict=True), 0
        parsed_rows: list[list[str]] = []
        lines: list[str] = []
        for cells in reader:
            row_text, lines_read = "".join(raw_lines[lines_read : reader.line_num]), reader.line_num
            if cells:
                parsed_rows.append(cells)
                lines.append(row_text)
            else:
                lines[-1] += row_text
        header = [name.removeprefix(BOM) for name in parsed_rows[0]]
        return cls(header, [dict(zip_longest(header, cells, fillvalue="")) for cells in parsed_rows[1:]], lines)

    @property
    def text(self) -> str:
        """The content of the file."""
        return "".join(self.lines)

    def replace_rows(self, start: int, stop: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the rows [start, stop). Columns that the header lacks are added to it."""
        newline = "\r\n" if self.lines[0].endswith("\r\n") else "\n"
        for column in dict.fromkeys(column for row in rows for column in row if column not in self.header):
            self.header.append(column)
            self.lines[0] = f"{self.lines[0].rstrip(NEWLINE_CHARS)},{column}{newline}"
        lines = [_format_row([row.get(column, "") for column in self.header], newline) for row in rows]
        if rows and not self.lines[start].endswith(tuple(NEWLINE_CHARS)):
            self.lines[start] += newline
        self.rows[start:stop] = [{key: str(value) for key, value in row.items()} for row in rows]
        self.lines[start + 1 : stop + 1] = lines


def _format_row(cells: Sequence[Any], newline: str) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator=newline).writerow(cells)
    return buffer.getvalue()
