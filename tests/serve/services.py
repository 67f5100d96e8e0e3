"""Services on this machine, and models whose answer is known: a judgement that tells which film it was of."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.base import Sight
from embodied_rm.models.plans import Plans
from embodied_rm.models.self_test import tested
from embodied_rm.serve.config import ServeConfig
from embodied_rm.serve.served import About, Served, serve_in_thread
from embodied_rm.serve.server import serve
from embodied_rm.types import Progress, Views

VERSION = "0" * 64


@dataclass(frozen=True)
class Digests:
    """The `Memory` of `Hashing`: what the film so far comes to."""

    digest: Tensor
    """int64 [N]."""

    def __len__(self) -> int:
        return len(self.digest)

    def take(self, rows) -> Digests:
        return Digests(self.digest[torch.from_numpy(np.asarray(rows))])

    def put(self, rows, other) -> Digests:
        digest = self.digest.clone()
        digest[torch.from_numpy(np.asarray(rows))] = other.digest
        return Digests(digest)

    def potential(self) -> np.ndarray:
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

    def begin(self, views: Views, instructions, goal=None, reference=None) -> Digests:
        self.spend(len(views))
        return Digests(torch.tensor([first(text, views.frames[row]) for row, text in enumerate(instructions)]))

    def advance(self, memory: Digests, views: Views) -> tuple[Progress, Digests]:
        self.spend(len(views))
        digest = torch.tensor(
            [following(int(before), views.frames[row]) for row, before in enumerate(memory.digest.tolist())]
        )
        value = share(digest.numpy())
        zero = np.zeros_like(value)
        stage = digest.numpy().copy()
        return Progress(value=value, valid=value >= 0, stage=stage, success=zero, spread=zero), Digests(digest)

    def spend(self, rows: int) -> None:
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
    return int.from_bytes(hashlib.blake2b(content, digest_size=6).digest(), "little")


def share(digest: np.ndarray) -> np.ndarray:
    return (digest % 100_000 / 100_000).astype(np.float32)


def served_by(model: Any, **said: Any) -> Served:
    """A model in its thread, as the command opens one."""

    def opened() -> tuple[Plans, About, Any]:
        planned = Plans(model)
        _, memory = tested(planned, model.sight)
        about = {
            "name": "reward",
            "version": VERSION,
            "views": model.sight.views,
            "image_size": model.sight.image_size,
            "tells_success": planned.tells_success,
            "storable": memory.storable,
            "sound": True,
        }
        return planned, About(**{**about, **said}), memory

    return serve_in_thread(opened)


@contextmanager
def serving(model: Any, key: str | None = None, config: ServeConfig | None = None, **said: Any) -> Iterator[str]:
    """The address of a service of a model, in a thread of this process."""
    threads = torch.get_num_threads()
    told: dict[str, Any] = {}
    listens = threading.Event()

    def started(url: str, end: Callable[[], None]) -> None:
        told.update(url=url, end=end)
        listens.set()

    served = served_by(model, **said)
    config = config or ServeConfig(port=0, drain_s=5)
    thread = threading.Thread(target=serve, args=(served, config, key, started))
    thread.start()
    try:
        assert listens.wait(20)
        yield told["url"]
    finally:
        told["end"]()
        thread.join(20)
        served.thread.shutdown()
        torch.set_num_threads(threads)
        assert not thread.is_alive()


def films(rows: int, frames: int, seed: int = 0, size: int = 8, views: int = 2) -> np.ndarray:
    """Noise: uint8 [frames, rows, views, size, size, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (frames, rows, views, size, size, 3), np.uint8)


def by_view(frames: np.ndarray) -> dict[str, np.ndarray]:
    """[N, V, H, W, 3] as a client takes them."""
    return {name: frames[:, i] for i, name in enumerate(("front", "wrist", "side")[: frames.shape[1]])}
