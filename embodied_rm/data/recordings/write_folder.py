"""Writes annotations back beside the films of a recording."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.annotation import Annotation, matched
from embodied_rm.data.json_file import json_like, read_json
from embodied_rm.data.recordings.folder import ANNOTATION, SUCCESS, read_success
from embodied_rm.data.recordings.recording import read_steps
from embodied_rm.data.write_inside import remove_inside, write_inside
from embodied_rm.types import Step

NEW = "[\n    \n]\n"
"""What a file of steps that is not there yet is written like."""


class FolderAnnotations:
    """The annotations of recordings in folders, an `AnnotationStore`: steps in one file, the outcome in another."""

    def __init__(self, root: Path, folders: Sequence[Path], lengths: Sequence[int]) -> None:
        """`root`: the dataset, in which all of the `folders` lie; nothing outside it is written."""
        self._root, self._folders, self._lengths = root, tuple(folders), tuple(lengths)

    def read(self, index: int) -> Annotation:
        """See `AnnotationStore.read`."""
        folder, length = self._folders[index], self._lengths[index]
        steps = read_steps(folder / ANNOTATION, length) if (folder / ANNOTATION).exists() else ()
        return Annotation(steps=steps, success=read_success(folder))

    def write(self, index: int, annotation: Annotation) -> None:
        """See `AnnotationStore.write`. The outcome is written first: a recording with steps is done with."""
        folder, stored = self._folders[index], self.read(index)
        if annotation.success != stored.success:
            _write_success(self._root, folder / SUCCESS, annotation.success)
        if annotation.steps != stored.steps:
            _write_steps(self._root, folder / ANNOTATION, stored.steps, annotation.steps)

    def mend(self) -> tuple[str, ...]:
        """Nothing is said twice."""
        return ()


def _write_success(root: Path, path: Path, success: bool | None) -> None:
    if success is None:
        remove_inside(root, path)
        return
    before = read_json(path, "JSON", dict) if path.exists() else {}
    write_inside(root, path, json.dumps({**before, "success": success}) + "\n")


def _write_steps(root: Path, path: Path, stored: Sequence[Step], steps: Sequence[Step]) -> None:
    text = path.read_bytes().decode() if path.exists() else NEW
    entries = json.loads(text)
    made = []
    for step, at in zip(steps, matched(stored, steps), strict=True):
        entry = {} if at is None else entries[at]
        # Published recordings spell it either way: an entry keeps its spelling, a new one has that of the first.
        spelt = "anotation" if "annotation" not in (entry or (entries or [{"annotation": ""}])[0]) else "annotation"
        made.append({**entry, spelt: step.name, "start_frame_id": step.start, "end_frame_id": step.end})
    write_inside(root, path, json_like(text, made))
