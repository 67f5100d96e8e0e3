"""One dataset while it is annotated: what is stored, what is proposed, how it looks, what has been saved."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from embodied_rm.annotate.frame_cache import JpegFrameCache
from embodied_rm.annotate.proposals import SubtaskProposer, propose_subtasks
from embodied_rm.data.annotation import Annotation, AnnotationStore
from embodied_rm.data.recordings.recording import check_subtasks
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError
from embodied_rm.types import Subtask


class VersionConflictError(UserError):
    """Somebody else has saved the episode since it was looked at."""


class AnnotationSession:
    """The episodes of a source and their annotations. Usable from several threads; indices must be right."""

    def __init__(
        self,
        source: EpisodeSource,
        store: AnnotationStore,
        proposer: SubtaskProposer,
        subtask_names: Sequence[str] = (),
    ) -> None:
        """`names`: what steps may be called, in order."""
        self.source, self.frame_cache = source, JpegFrameCache(source)
        self.saved_annotations: dict[int, Annotation] = {}
        """What has been saved, by episode."""
        self._store, self._proposer, self._subtask_names = store, proposer, tuple(subtask_names)
        self._proposals: dict[int, tuple[Subtask, ...]] = {}
        self._write_lock, self._proposal_lock = threading.Lock(), threading.Lock()

    def overview(self) -> dict[str, Any]:
        """The dataset, as JSON."""
        episodes = [self._summarize_episode(index) for index in range(len(self.source))]
        return {"views": list(self.source.views), "names": list(self._subtask_names), "episodes": episodes}

    def _summarize_episode(self, index: int) -> dict[str, Any]:
        meta = self.source.meta[index]
        annotation = self.saved_annotations.get(index, Annotation(subtasks=meta.subtasks, success=meta.success))
        summary = {"name": meta.name, "instruction": meta.instruction, "length": meta.length}
        subtasks = [subtask.name for subtask in annotation.subtasks]
        return {**summary, "fps": self.source.frame_rate(index), "steps": subtasks, "success": annotation.success}

    def read_annotation(self, index: int) -> Annotation:
        """What is stored of an episode now. Raises `DataError` where it cannot be read."""
        return self._store.read(index)

    def propose_subtasks(self, index: int) -> tuple[Subtask, ...]:
        """What is proposed for an episode. Raises `DataError` where it cannot be read."""
        with self._proposal_lock:
            if index not in self._proposals:
                self._proposals[index] = propose_subtasks(self.source, index, self._proposer)
            return self._proposals[index]

    def save(self, index: int, annotation: Annotation, version: str) -> None:
        """Store what was made of the `version` of an annotation.

        Raises `DataError` for steps that do not fit the episode, `OutdatedError` where another version is stored, which
        says something else, and `OSError` where nothing can be written.
        """
        meta = self.source.meta[index]
        check_subtasks(annotation.subtasks, meta.length, meta.name)
        with self._write_lock:
            stored = self._store.read(index)
            if stored == annotation:
                return
            if stored.version != version:
                raise VersionConflictError(
                    f"{meta.name}: has been saved by somebody else since it was loaded here; load it again"
                )
            self._store.write(index, annotation)
            self.saved_annotations[index] = annotation

    def close(self) -> None:
        """Wait until what is being saved is saved."""
        self._write_lock.acquire()
