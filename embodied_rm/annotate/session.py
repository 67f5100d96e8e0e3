"""One dataset while it is annotated: what is stored, what is proposed, how it looks, what has been saved."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from embodied_rm.annotate.pictures import Pictures
from embodied_rm.annotate.proposals import Proposer, proposed
from embodied_rm.data.annotation import Annotation, AnnotationStore
from embodied_rm.data.recordings.recording import check_order
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError
from embodied_rm.types import Step


class OutdatedError(UserError):
    """Somebody else has saved the episode since it was looked at."""


class Session:
    """The episodes of a source and their annotations. Usable from several threads; indices must be right."""

    def __init__(
        self, source: EpisodeSource, store: AnnotationStore, propose: Proposer, names: Sequence[str] = ()
    ) -> None:
        """`names`: what steps may be called, in order."""
        self.source, self.pictures = source, Pictures(source)
        self.saved: dict[int, Annotation] = {}
        """What has been saved, by episode."""
        self._store, self._propose, self._names = store, propose, tuple(names)
        self._proposals: dict[int, tuple[Step, ...]] = {}
        self._writing, self._proposing = threading.Lock(), threading.Lock()

    def overview(self) -> dict[str, Any]:
        """The dataset, as JSON."""
        episodes = [self._outline(index) for index in range(len(self.source))]
        return {"views": list(self.source.views), "names": list(self._names), "episodes": episodes}

    def _outline(self, index: int) -> dict[str, Any]:
        meta = self.source.meta[index]
        known = self.saved.get(index, Annotation(steps=meta.steps, success=meta.success))
        told = {"name": meta.name, "instruction": meta.instruction, "length": meta.length}
        steps = [step.name for step in known.steps]
        return {**told, "fps": self.source.frame_rate(index), "steps": steps, "success": known.success}

    def stored(self, index: int) -> Annotation:
        """What is stored of an episode now. Raises `DataError` where it cannot be read."""
        return self._store.read(index)

    def proposal(self, index: int) -> tuple[Step, ...]:
        """What is proposed for an episode. Raises `DataError` where it cannot be read."""
        with self._proposing:
            if index not in self._proposals:
                self._proposals[index] = proposed(self.source, index, self._propose)
            return self._proposals[index]

    def save(self, index: int, annotation: Annotation, version: str) -> None:
        """Store what was made of the `version` of an annotation.

        Raises `DataError` for steps that do not fit the episode, `OutdatedError` where another version is stored, which
        says something else, and `OSError` where nothing can be written.
        """
        meta = self.source.meta[index]
        check_order(annotation.steps, meta.length, meta.name)
        with self._writing:
            stored = self._store.read(index)
            if stored == annotation:
                return
            if stored.version != version:
                raise OutdatedError(
                    f"{meta.name}: has been saved by somebody else since it was loaded here; load it again"
                )
            self._store.write(index, annotation)
            self.saved[index] = annotation

    def close(self) -> None:
        """Wait until what is being saved is saved."""
        self._writing.acquire()
