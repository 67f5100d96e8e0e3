"""State of an annotation session: stored and proposed subtasks, frames, and the annotations saved so far."""

import threading
from collections.abc import Sequence
from typing import Any

from embodied_rm.annotate.proposals import SubtaskProposer, propose_subtasks
from embodied_rm.data.annotation import Annotation, AnnotationStore
from embodied_rm.data.source import EpisodeSource, check_subtasks
from embodied_rm.errors import UserError
from embodied_rm.types import Subtask


class VersionConflictError(UserError):
    """The stored annotation has changed since it was loaded."""


class AnnotationSession:
    """The episodes of a source and their annotations. Thread-safe; indices must be valid."""

    def __init__(
        self,
        source: EpisodeSource,
        store: AnnotationStore,
        proposer: SubtaskProposer,
        subtask_names: Sequence[str] = (),
    ) -> None:
        self.source, self.store = source, store
        self.saved_annotations: dict[int, Annotation] = {}
        """Episode index -> the annotation saved in this session."""
        self._proposer, self._subtask_names = proposer, tuple(subtask_names)
        self._proposals: dict[int, tuple[Subtask, ...]] = {}
        self._write_lock, self._proposal_lock = threading.Lock(), threading.Lock()

    def overview(self) -> dict[str, Any]:
        """Return the dataset as JSON."""
        episodes = [self._summarize_episode(index) for index in range(len(self.source))]
        return {"views": list(self.source.views), "subtask_names": list(self._subtask_names), "episodes": episodes}

    def _summarize_episode(self, index: int) -> dict[str, Any]:
        meta = self.source.meta[index]
        annotation = self.saved_annotations.get(index, Annotation(subtasks=meta.subtasks, success=meta.success))
        summary = {"name": meta.name, "instruction": meta.instruction, "length": meta.length}
        subtasks = [subtask.name for subtask in annotation.subtasks]
        return {**summary, "fps": self.source.frame_rate(index), "subtasks": subtasks, "success": annotation.success}

    def propose_subtasks(self, index: int) -> tuple[Subtask, ...]:
        """Return the proposed subtasks of an episode."""
        with self._proposal_lock:
            if index not in self._proposals:
                self._proposals[index] = propose_subtasks(self.source, index, self._proposer)
            return self._proposals[index]

    def save(self, index: int, annotation: Annotation, version: str) -> None:
        """Store an annotation that is based on `version`.

        Raises `DataError` if the subtasks do not fit the episode, and `VersionConflictError` if another version with
        other content is stored.
        """
        meta = self.source.meta[index]
        check_subtasks(annotation.subtasks, meta.length, meta.name)
        with self._write_lock:
            stored = self.store.read(index)
            if stored == annotation:
                return
            if stored.version != version:
                raise VersionConflictError(
                    f"{meta.name}: was saved by another client since it was loaded; load it again"
                )
            self.store.write(index, annotation)
            self.saved_annotations[index] = annotation

    def close(self) -> None:
        """Wait for a save in progress."""
        self._write_lock.acquire()
