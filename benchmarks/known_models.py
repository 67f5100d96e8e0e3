"""Reward models whose answer is known: a judgement that tells which film it was of. For trials of services."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.base import Memory, Rows, Sight
from embodied_rm.models.plans import Plans
from embodied_rm.models.self_test import examined
from embodied_rm.serve.served import About, Served, serve_in_thread
from embodied_rm.types import Array, Progress, Views

VERSION = "0" * 64


@dataclass(frozen=True)
class Digests:
    """The `Memory` of `Hashing`: what the film so far comes to."""

    digest: Tensor
    """int64 [N]."""

    def __len__(self) -> int:
        return len(self.digest)

    def take(self, rows: Rows) -> Digests:
        return Digests(self.digest[torch.from_numpy(np.asarray(rows))])

    def put(self, rows: Rows, other: Memory) -> Digests:
        assert isinstance(other, Digests)
        digest = self.digest.clone()
        digest[torch.from_numpy(np.asarray(rows))] = other.digest
        return Digests(digest)

    def potential(self) -> Array:
        return share(self.digest.numpy())

    def state(self) -> dict[str, Tensor]:
        return {"digest": self.digest.clone()}

    def restored(self, state: dict[str, Tensor]) -> Digests:
        return Digests(state["digest"])


class Hashing:
    """A reward model whose judgement is a hash of its instruction and of every frame so far, of that row alone."""

    sight = Sight()

    def __init__(self, pause: float = 0.0) -> None:
        """`pause`: seconds that a batch takes, as on a device that works by itself."""
        self.pause = pause
        self.batches: list[int] = []

    def begin(
        self, views: Views, instructions: Sequence[str], goal: Views | None = None, reference: Any = None
    ) -> Digests:
        self.spend(len(views))
        frames = np.asarray(views.frames)
        return Digests(torch.tensor([first(text, frames[row]) for row, text in enumerate(instructions)]))

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, Digests]:
        assert isinstance(memory, Digests)
        self.spend(len(views))
        frames = np.asarray(views.frames)
        digest = torch.tensor(
            [following(int(before), frames[row]) for row, before in enumerate(memory.digest.tolist())]
        )
        value = share(digest.numpy())
        zero = np.zeros_like(value)
        stage = digest.numpy().copy()
        return Progress(value=value, valid=value >= 0, stage=stage, success=zero, spread=zero), Digests(digest)

    def spend(self, rows: int) -> None:
        """The time of a batch."""
        self.batches.append(rows)
        if self.pause:
            time.sleep(self.pause)


def first(instruction: str, frames: np.ndarray) -> int:
    """The digest of an episode that begins so: [V, H, W, 3]."""
    return number(instruction.encode() + frames.tobytes())


def following(before: int, frames: np.ndarray) -> int:
    """The digest after one frame more."""
    return number(before.to_bytes(8, "little") + frames.tobytes())


def number(content: bytes) -> int:
    """Of some bytes, of 48 bits."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "little")


def share(digest: np.ndarray) -> Array:
    """A progress that tells digests apart."""
    progress: Array = (digest % 100_000 / 100_000).astype(np.float32)
    return progress


def served_by(model: Any, **said: Any) -> Served:
    """A model in its thread, as the command opens one; `said`: what is to be said of it."""

    def opened() -> tuple[Plans, About, Any]:
        planned = Plans(model)
        _, memory = examined(planned, model.sight)
        about = {
            "name": "reward",
            "version": VERSION,
            "views": model.sight.views,
            "image_size": model.sight.image_size,
            "tells_success": planned.tells_success,
            "storable": memory.storable,  # type: ignore[attr-defined]
            "sound": True,
        }
        return planned, About(**{**about, **said}), memory

    return serve_in_thread(opened)
