"""Writes annotations back into a table of recordings, `episodes.json` or `episodes.csv` with `steps.csv`.

Of a CSV table only the lines of the episode are written anew, the others keep every byte.
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

from embodied_rm.data.annotation import Annotation, matched
from embodied_rm.data.json_file import json_like
from embodied_rm.data.recordings.recording import Recording
from embodied_rm.data.recordings.table import CSV_STEPS, CSV_TABLE, JSON_TABLE, listed_as
from embodied_rm.data.write_inside import write_inside
from embodied_rm.types import Step

SAID = {True: "true", False: "false", None: ""}
NEW_STEPS = "name,step,start,end\n"
BOM, NEWLINE = "\ufeff", "\r\n"


class TableAnnotations:
    """The annotations of the recordings `names` that the table of a folder lists, an `AnnotationStore`."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, tuple(names)
        self._replace = replace_json if (folder / JSON_TABLE).exists() else replace_csv

    def read(self, index: int) -> Annotation:
        """See `AnnotationStore.read`."""
        return _annotation(listed_as(self._folder, self._names[index]))

    def write(self, index: int, annotation: Annotation) -> None:
        """See `AnnotationStore.write`. Of two files, that with the outcomes is written first."""
        self._replace(self._folder, listed_as(self._folder, self._names[index]), annotation)

    def mend(self) -> tuple[str, ...]:
        """Nothing is said twice."""
        return ()


def _annotation(recording: Recording) -> Annotation:
    assert not isinstance(recording.steps, Path)
    return Annotation(steps=recording.steps, success=recording.success)


def replace_json(folder: Path, recording: Recording, annotation: Annotation) -> None:
    """Write what is new of a recording into `episodes.json`."""
    path, stored = folder / JSON_TABLE, _annotation(recording)
    text = path.read_bytes().decode()
    entries = json.loads(text)
    assert recording.number is not None
    entry = entries[recording.number]
    if annotation.success != stored.success:
        entry["success"] = annotation.success
    if annotation.steps != stored.steps:
        entry["steps"] = _renewed(entry.get("steps") or [], stored.steps, annotation.steps)
    if annotation != stored:
        write_inside(folder, path, json_like(text, entries))


def replace_csv(folder: Path, recording: Recording, annotation: Annotation) -> None:
    """Write what is new of a recording into `episodes.csv` and `steps.csv`."""
    stored = _annotation(recording)
    if annotation.success != stored.success:
        assert recording.number is not None
        table = CsvLines.of((folder / CSV_TABLE).read_bytes().decode())
        row = table.rows[recording.number] | {"success": SAID[annotation.success]}
        table.replace(recording.number, recording.number + 1, [row])
        write_inside(folder, folder / CSV_TABLE, table.text)
    if annotation.steps != stored.steps:
        path = folder / CSV_STEPS
        table = CsvLines.of(path.read_bytes().decode() if path.exists() else NEW_STEPS)
        mine = [i for i, row in enumerate(table.rows) if row["name"] == recording.name]
        made = _renewed([table.rows[i] for i in mine], stored.steps, annotation.steps, name="step")
        first = mine[0] if mine else len(table.rows)
        for i in reversed(mine):
            table.replace(i, i + 1, [])
        table.replace(first, first, [{**row, "name": recording.name} for row in made])
        write_inside(folder, path, table.text)


def _renewed(
    entries: Sequence[Mapping[str, Any]], stored: Sequence[Step], steps: Sequence[Step], name: str = "name"
) -> list[dict[str, Any]]:
    """An entry for each step; it keeps what else was said of the step."""
    return [
        {**({} if at is None else entries[at]), name: step.name, "start": step.start, "end": step.end}
        for step, at in zip(steps, matched(stored, steps), strict=True)
    ]


@dataclass
class CsvLines:
    """A CSV table of which every row knows its own lines."""

    head: list[str]
    rows: list[dict[str, str]]
    lines: list[str]
    """As they stand in the file: of the head, then of each row, with the empty ones behind it."""

    @classmethod
    def of(cls, text: str) -> CsvLines:
        """The table in a text that `listed` has read without a fault."""
        physical = io.StringIO(text, newline="").readlines()
        reader, done = csv.reader(physical, strict=True), 0
        found: list[list[str]] = []
        lines: list[str] = []
        for cells in reader:
            own, done = "".join(physical[done : reader.line_num]), reader.line_num
            if cells:
                found.append(cells)
                lines.append(own)
            else:
                lines[-1] += own
        head = [name.removeprefix(BOM) for name in found[0]]
        return cls(head, [dict(zip_longest(head, cells, fillvalue="")) for cells in found[1:]], lines)

    @property
    def text(self) -> str:
        """The file."""
        return "".join(self.lines)

    def replace(self, start: int, stop: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Put rows in the place of the rows [start, stop); columns that the head lacks are added to it."""
        end = "\r\n" if self.lines[0].endswith("\r\n") else "\n"
        for column in dict.fromkeys(column for row in rows for column in row if column not in self.head):
            self.head.append(column)
            self.lines[0] = f"{self.lines[0].rstrip(NEWLINE)},{column}{end}"
        lines = [_line([row.get(column, "") for column in self.head], end) for row in rows]
        if rows and not self.lines[start].endswith(tuple(NEWLINE)):
            self.lines[start] += end
        self.rows[start:stop] = [{key: str(value) for key, value in row.items()} for row in rows]
        self.lines[start + 1 : stop + 1] = lines


def _line(cells: Sequence[Any], end: str) -> str:
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator=end).writerow(cells)
    return written.getvalue()
