"""Similarity of image and instruction from a pretrained CLIP model as a reward: a baseline without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.encoders import resize, token_ids
from embodied_rm.models.reward_model import (
    Capabilities,
    Demonstration,
    InputSpec,
    RewardState,
    RowIndices,
    check_reset,
    check_step,
    make_plain_output,
)
from embodied_rm.types import Array, Frames, RewardOutput, Views

BASELINE_TEXT = "a robot arm at a table"  # a description that holds for every image, whatever the task
DEFAULT_ALPHA = 0.5  # strength of the regularization in [0, 1]: 1 projects onto the line from baseline to goal
IMAGES_PER_CHUNK = 64  # images that are encoded in one batch, to bound the memory of large towers


@dataclass(frozen=True, kw_only=True)
class SimilarityState:
    """State of `ClipSimilarity`: the last value is carried over frames without a visible view."""

    goal_embedding: Tensor  # embedding of the instruction, of unit length; float [N, D]
    last_value: Array  # last value, float32 [N]; 0 before the first

    def __len__(self) -> int:
        return len(self.last_value)

    def take(self, rows: RowIndices) -> SimilarityState:
        """Return a copy of the given rows, in that order."""
        index = torch.from_numpy(np.asarray(rows))
        return SimilarityState(goal_embedding=self.goal_embedding[index], last_value=self.last_value[rows])

    def put(self, rows: RowIndices, other: RewardState) -> SimilarityState:
        """Return this state with `rows` replaced by the rows of `other`."""
        assert isinstance(other, SimilarityState)
        goal_embedding, last_value = self.goal_embedding.clone(), self.last_value.copy()
        goal_embedding[torch.from_numpy(np.asarray(rows))], last_value[rows] = other.goal_embedding, other.last_value
        return SimilarityState(goal_embedding=goal_embedding, last_value=last_value)

    def potential(self) -> Array:
        """float32 [N]: the last value."""
        return self.last_value.copy()


class ClipSimilarity:
    """A `RewardModel` from any open_clip model. It accepts any view and predicts no subtasks; success equals progress.

    Progress is (1 + y) / 2 of the regularized similarity y, averaged over the present views. y is in [-1, 1] and is the
    cosine for alpha = 0. These bounds are fixed: bounds from the episode itself would need its end.
    Source: Rocamonde et al., ICLR 2024 (arXiv 2310.12921), with goal-baseline regularization.
    """

    capabilities = Capabilities()

    def __init__(self, source: str, *, baseline: str = BASELINE_TEXT, alpha: float = DEFAULT_ALPHA) -> None:
        """Load the model, see `load_open_clip`; `alpha` in [0, 1] is the strength of the regularization."""
        from embodied_rm.models.pretrained import load_open_clip  # imports open_clip, which takes seconds

        assert 0 <= alpha <= 1
        self.config, clip = load_open_clip(source)
        self.input_spec, self.alpha = InputSpec(image_size=self.config.image_size), alpha
        self._clip = clip.eval()
        self.logit_scale = float(clip.logit_scale.detach().exp())
        """Factor of similarities under which the model was trained to tell which sentence belongs to which image."""
        self._baseline = self.encode_text([baseline])

    def encode_text(self, sentences: Sequence[str]) -> Tensor:
        """Embeddings of unit length, float [N, D]."""
        with torch.inference_mode():
            return self._clip.encode_text(token_ids(self.config, sentences), normalize=True)

    def encode_image(self, frames: Frames) -> Tensor:
        """Embeddings of unit length, float [P, D], of images uint8 [P, H, W, 3]."""
        mean, std = (torch.tensor(x).view(3, 1, 1) for x in (self.config.mean, self.config.std))
        with torch.inference_mode():
            chunks = (chunk.permute(0, 3, 1, 2).float() for chunk in torch.from_numpy(frames).split(IMAGES_PER_CHUNK))
            images = ((resize(chunk, self.config.image_size) / 255 - mean) / std for chunk in chunks)
            return torch.cat([self._clip.encode_image(chunk, normalize=True) for chunk in images])

    def similarity(self, image_embedding: Tensor, goal_embedding: Tensor) -> Tensor:
        """Regularized similarity y = 1 - |alpha P(x - g) + (1 - alpha)(x - g)|^2 / 2 in [-1, 1], [P].

        P projects onto the direction from the baseline to the goal g. x and g are [P, D], of unit length.
        """
        residual, direction = image_embedding - goal_embedding, goal_embedding - self._baseline
        # A goal equal to the baseline has no direction, so nothing is projected.
        squared_length = direction.square().sum(dim=1, keepdim=True).clamp_min(1e-12)
        projected = (residual * direction).sum(dim=1, keepdim=True) / squared_length * direction
        return 1 - (self.alpha * projected + (1 - self.alpha) * residual).square().sum(dim=1) / 2

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> SimilarityState:
        """Start N episodes. First frames, goal images and references are not used."""
        check_reset(len(views), instructions)
        last_value = np.zeros(len(views), np.float32)
        return SimilarityState(goal_embedding=self.encode_text(instructions), last_value=last_value)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, SimilarityState]:
        """Score one new frame set per row; a row without a present view is invalid and carries its last value."""
        assert isinstance(state, SimilarityState) and isinstance(views.frames, np.ndarray)
        check_step(len(state), len(views))
        shape = views.frames.shape[:2]
        present = np.ones(shape, bool) if views.present is None else views.present
        value, valid = state.last_value.copy(), np.logical_or.reduce(present, axis=1)
        if valid.any():
            batch_index = np.nonzero(present)[0]
            goals = state.goal_embedding[torch.from_numpy(batch_index)]
            similarities = self.similarity(self.encode_image(views.frames[present]), goals).numpy()
            total = np.bincount(batch_index, weights=(1 + similarities) / 2, minlength=len(views))
            value[valid] = np.clip(total[valid] / present.sum(axis=1)[valid], 0, 1)
        return make_plain_output(value, valid, success=value), replace(state, last_value=value)
