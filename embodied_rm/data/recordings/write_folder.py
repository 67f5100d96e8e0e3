"""Write annotations to JSON files next to the videos of a recording."""

import json
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.data.annotation import Annotation, match_subtasks
from embodied_rm.data.dataset_files import dump_json_like, read_json, remove_inside, write_inside
from embodied_rm.data.recordings.recording import ANNOTATION_FILE, SUCCESS_FILE, read_subtasks, read_success
from embodied_rm.types import Subtask

EMPTY_SUBTASKS_JSON = "[\n    \n]\n"  # style of a new file of subtasks


class FolderAnnotationStore:
    """Annotations of recordings in folders inside `root`, an `AnnotationStore`: two files, for subtasks and outcome.

    `lengths` are the numbers of frames.
    """

    def __init__(self, root: Path, folders: Sequence[Path], lengths: Sequence[int]) -> None:
        self._root = root
        self._folders = tuple(folders)
        self._lengths = tuple(lengths)

    def read(self, index: int) -> Annotation:
        """See `AnnotationStore.read`."""
        folder, length = self._folders[index], self._lengths[index]
        subtasks = read_subtasks(folder / ANNOTATION_FILE, length) if (folder / ANNOTATION_FILE).exists() else ()
        return Annotation(subtasks=subtasks, success=read_success(folder))

    def write(self, index: int, annotation: Annotation) -> None:
        """See `AnnotationStore.write`. The outcome is written first, so a recording with subtasks is complete."""
        folder, stored = self._folders[index], self.read(index)
        if annotation.success != stored.success:
            _write_success(self._root, folder / SUCCESS_FILE, annotation.success)
        if annotation.subtasks != stored.subtasks:
            _write_subtasks(self._root, folder / ANNOTATION_FILE, stored.subtasks, annotation.subtasks)

    def repair(self) -> tuple[str, ...]:
        """Return nothing: no value is stored twice."""
        return ()


def _write_success(root: Path, path: Path, success: bool | None) -> None:
    if success is None:
        remove_inside(root, path)
        return
    previous = read_json(path, "JSON", dict) if path.exists() else {}
    write_inside(root, path, json.dumps({**previous, "success": success}) + "\n")


def _write_subtasks(root: Path, path: Path, stored: Sequence[Subtask], subtasks: Sequence[Subtask]) -> None:
    text = path.read_bytes().decode() if path.exists() else EMPTY_SUBTASKS_JSON
    entries = json.loads(text)
    new_entries = []
    for subtask, stored_index in zip(subtasks, match_subtasks(stored, subtasks), strict=True):
        entry = {} if stored_index is None else entries[stored_index]
        # Published recordings use both spellings: an entry keeps its own, a new one gets that of the first entry.
        name_key = "anotation" if "annotation" not in (entry or (entries or [{"annotation": ""}])[0]) else "annotation"
        frames = {"start_frame_id": subtask.start, "end_frame_id": subtask.end}
        new_entries.append({**entry, name_key: subtask.name, **frames})
    write_inside(root, path, dump_json_like(text, new_entries))
