"""A reward model with known predictions: a hash of everything that an episode has seen. For tests of services."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.reward_model import Capabilities, InputSpec, RewardState, RowIndices
from embodied_rm.models.self_test import run_self_test
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.serve.model_handle import ModelHandle, ModelMetadata, load_in_thread
from embodied_rm.types import Array, RewardOutput, Views

MODEL_VERSION = "0" * 64


@dataclass(frozen=True)
class HashState:
    """State of `HashModel`: a digest of the frames so far."""

    digest: Tensor
    """int64 [N]."""

    def __len__(self) -> int:
        return len(self.digest)

    def take(self, rows: RowIndices) -> HashState:
        return HashState(self.digest[torch.from_numpy(np.asarray(rows))])

    def put(self, rows: RowIndices, replacement: RewardState) -> HashState:
        assert isinstance(replacement, HashState)
        digest = self.digest.clone()
        digest[torch.from_numpy(np.asarray(rows))] = replacement.digest
        return HashState(digest)

    def potential(self) -> Array:
        return digest_to_progress(self.digest.numpy())

    def state_dict(self) -> dict[str, Tensor]:
        return {"digest": self.digest.clone()}

    def from_state_dict(self, state: dict[str, Tensor]) -> HashState:
        return HashState(state["digest"])


class HashModel:
    """A reward model that predicts a hash of the instruction and of every frame so far, per row."""

    input_spec = InputSpec()
    capabilities = Capabilities(serializable_state=True)

    def __init__(self, batch_s: float = 0.0) -> None:
        """`batch_s`: seconds per batch, to simulate a slower model."""
        self.batch_s = batch_s
        self.batch_sizes: list[int] = []

    def reset(
        self, views: Views, instructions: Sequence[str], goal: Views | None = None, reference: Any = None
    ) -> HashState:
        self.simulate_cost(len(views))
        frames = np.asarray(views.frames)
        return HashState(torch.tensor([initial_digest(text, frames[row]) for row, text in enumerate(instructions)]))

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, HashState]:
        assert isinstance(state, HashState)
        self.simulate_cost(len(views))
        frames = np.asarray(views.frames)
        digest = torch.tensor(
            [next_digest(int(previous), frames[row]) for row, previous in enumerate(state.digest.tolist())]
        )
        progress = digest_to_progress(digest.numpy())
        zero = np.zeros_like(progress)
        subtask = digest.numpy().copy()
        return RewardOutput(
            progress=progress, valid=progress >= 0, subtask=subtask, success=zero, uncertainty=zero
        ), HashState(digest)

    def simulate_cost(self, rows: int) -> None:
        """Record the batch size and sleep for the time of a batch."""
        self.batch_sizes.append(rows)
        if self.batch_s:
            time.sleep(self.batch_s)


def initial_digest(instruction: str, frames: np.ndarray) -> int:
    """Return the digest of an episode after its first frames [V, H, W, 3]."""
    return hash_bytes(instruction.encode() + frames.tobytes())


def next_digest(previous: int, frames: np.ndarray) -> int:
    """Return the digest after one more frame."""
    return hash_bytes(previous.to_bytes(8, "little") + frames.tobytes())


def hash_bytes(content: bytes) -> int:
    """Return a 48-bit hash."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "little")


def digest_to_progress(digest: np.ndarray) -> Array:
    """Convert digests [N] to progress values that distinguish them, float32 [N]."""
    progress: Array = (digest % 100_000 / 100_000).astype(np.float32)
    return progress


def serve_model(model: Any, **overrides: Any) -> ModelHandle:
    """Load a model in its thread, as the command does. `overrides`: fields of the metadata."""

    def open_model() -> tuple[SubgoalRewardModel, ModelMetadata, Any]:
        subgoal_model = SubgoalRewardModel(model)
        _, state = run_self_test(subgoal_model, model.input_spec)
        info = {
            "name": "reward",
            "version": MODEL_VERSION,
            "views": model.input_spec.views,
            "image_size": model.input_spec.image_size,
            "predicts_success": subgoal_model.capabilities.predicts_success,
            "success_threshold": subgoal_model.capabilities.success_threshold,
            "supports_restore": subgoal_model.capabilities.serializable_state,
            "passed_self_test": True,
        }
        return subgoal_model, ModelMetadata(**{**info, **overrides}), state

    return load_in_thread(open_model)
