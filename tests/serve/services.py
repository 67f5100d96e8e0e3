"""Services on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from known_models import serve_model

from embodied_rm.serve.server import serve
from embodied_rm.serve.service_config import ServeConfig


@contextmanager
def serving(model: Any, key: str | None = None, config: ServeConfig | None = None, **said: Any) -> Iterator[str]:
    """The address of a service of a model, in a thread of this process."""
    threads = torch.get_num_threads()
    told: dict[str, Any] = {}
    listens = threading.Event()

    def started(url: str, end: Callable[[], None]) -> None:
        told.update(url=url, end=end)
        listens.set()

    served = serve_model(model, **said)
    config = config or ServeConfig(port=0, drain_timeout_s=5)
    thread = threading.Thread(target=serve, args=(served, config, key, started))
    thread.start()
    try:
        assert listens.wait(20)
        yield told["url"]
    finally:
        told["end"]()
        thread.join(20)
        served.executor.shutdown()
        torch.set_num_threads(threads)
        assert not thread.is_alive()


def videos(rows: int, frames: int, seed: int = 0, size: int = 8, views: int = 2) -> np.ndarray:
    """Noise: uint8 [frames, rows, views, size, size, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (frames, rows, views, size, size, 3), np.uint8)


def by_view(frames: np.ndarray) -> dict[str, np.ndarray]:
    """[N, V, H, W, 3] as a client takes them."""
    return {name: frames[:, i] for i, name in enumerate(("front", "wrist", "side")[: frames.shape[1]])}
