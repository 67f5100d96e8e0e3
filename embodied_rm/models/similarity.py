"""Frame-text similarity of a pretrained model as a reward: the baseline that needs no training and sees no progress.

Rocamonde et al., ICLR 2024 (arXiv 2310.12921), with goal-baseline regularisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Reference, Rows, Sight
from embodied_rm.models.encoders import resize
from embodied_rm.models.pretrained import load_clip
from embodied_rm.models.tokens import tokenize
from embodied_rm.types import Array, Frames, Progress, Views

BASELINE = "a robot arm at a table"
"""What every picture shows, whatever is to be done."""
ALPHA = 0.5
"""How much of what does not lie between baseline and goal is left out, in [0, 1]."""
CHUNK = 64
"""Pictures that are embedded at once: pretrained towers are large."""
UNKNOWN_STEP = -1


@dataclass(frozen=True, kw_only=True)
class SimilarityMemory:
    """The past counts for nothing but what is held where nothing can be seen."""

    goal: Tensor
    """Embedding of the instruction, of length 1; float [N, D]."""
    held: Array
    """The last value, float32 [N]; 0 before the first."""

    def __len__(self) -> int:
        return len(self.held)

    def take(self, rows: Rows) -> SimilarityMemory:
        """A copy of the given rows, in that order."""
        return SimilarityMemory(goal=self.goal[torch.from_numpy(np.asarray(rows))], held=self.held[rows])

    def put(self, rows: Rows, other: Memory) -> SimilarityMemory:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, SimilarityMemory)
        goal, held = self.goal.clone(), self.held.copy()
        goal[torch.from_numpy(np.asarray(rows))], held[rows] = other.goal, other.held
        return SimilarityMemory(goal=goal, held=held)

    def potential(self) -> Array:
        """float32 [N]: the last value."""
        return self.held.copy()


class Similarity:
    """A `RewardModel` of any open_clip model. It knows any view and no steps; its progress is its verdict too.

    Progress is (1 + y) / 2 of the regularised similarity y, mean over the views that are there. y is in [-1, 1], the
    cosine for alpha = 0; these bounds are fixed, never an episode's own, which would need its end.
    """

    def __init__(self, source: str, *, baseline: str = BASELINE, alpha: float = ALPHA) -> None:
        """`source`: as in `load_clip`, which says what it raises."""
        assert 0 <= alpha <= 1
        config, clip = load_clip(source)
        self.config, self.alpha, self._clip = config, alpha, clip.eval()
        self._baseline = self.read([baseline])

    @property
    def sight(self) -> Sight:
        """Any views, at the picture size of its tower."""
        return Sight(image_size=self.config.image_size)

    def read(self, sentences: Sequence[str]) -> Tensor:
        """Embeddings of length 1, float [N, D]."""
        text = self.config.open_clip["text_cfg"]
        ids = tokenize(sentences, text.get("context_length", 77), text.get("vocab_size", 49408))
        with torch.inference_mode():
            return self._clip.encode_text(ids, normalize=True)

    def look(self, frames: Frames) -> Tensor:
        """Embeddings of length 1, float [P, D], of pictures uint8 [P, H, W, 3]."""
        mean, std = (torch.tensor(x).view(3, 1, 1) for x in (self.config.mean, self.config.std))
        with torch.inference_mode():
            parts = (part.permute(0, 3, 1, 2).float() for part in torch.from_numpy(frames).split(CHUNK))
            pictures = ((resize(part, self.config.image_size) / 255 - mean) / std for part in parts)
            return torch.cat([self._clip.encode_image(part, normalize=True) for part in pictures])

    def similarity(self, seen: Tensor, goal: Tensor) -> Tensor:
        """y = 1 - |alpha P(x - g) + (1 - alpha)(x - g)|^2 / 2 in [-1, 1] of embeddings [P, D] of length 1; [P].

        P projects on the direction from the baseline to the goal.
        """
        away, direction = seen - goal, goal - self._baseline
        # A goal that reads like the baseline has no direction: nothing is projected.
        length = direction.square().sum(dim=1, keepdim=True).clamp_min(1e-12)
        along = (away * direction).sum(dim=1, keepdim=True) / length * direction
        return 1 - (self.alpha * along + (1 - self.alpha) * away).square().sum(dim=1) / 2

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> SimilarityMemory:
        """Open N episodes. What is wanted is read: neither first frames, goal pictures nor references are looked at.

        Raises `UserError` when lengths differ.
        """
        if len(instructions) != len(views):
            raise UserError(f"begin got views of {len(views)} environments, {len(instructions)} instructions")
        return SimilarityMemory(goal=self.read(instructions), held=np.zeros(len(views), np.float32))

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, SimilarityMemory]:
        """Judge one new frame set a row; a row without any present view is invalid and carries its last judgement.

        Raises `UserError` when lengths differ.
        """
        assert isinstance(memory, SimilarityMemory) and isinstance(views.frames, np.ndarray)
        if len(views) != len(memory):
            raise UserError(f"advance needs views of {len(memory)} environments, got {len(views)}")
        shape = views.frames.shape[:2]
        present = np.ones(shape, bool) if views.present is None else views.present
        value, valid = memory.held.copy(), np.logical_or.reduce(present, axis=1)
        if valid.any():
            owner = np.nonzero(present)[0]
            said = self.similarity(self.look(views.frames[present]), memory.goal[torch.from_numpy(owner)]).numpy()
            total = np.bincount(owner, weights=(1 + said) / 2, minlength=len(views))
            value[valid] = np.clip(total[valid] / present.sum(axis=1)[valid], 0, 1)
        unknown = np.full(len(views), UNKNOWN_STEP, np.int64)
        judged = Progress(value=value, valid=valid, stage=unknown, success=value, spread=np.zeros_like(value))
        return judged, replace(memory, held=value)
