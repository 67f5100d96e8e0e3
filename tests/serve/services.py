"""Helpers that run services in this process and make test videos."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from known_models import digest_to_progress, initial_digest, next_digest, serve_model

from embodied_rm.serve import server
from embodied_rm.serve.server import serve
from embodied_rm.serve.service_config import ServeConfig

LIFT = "lift the red cube"


@contextmanager
def serving(
    model: Any, api_key: str | None = None, config: ServeConfig | None = None, **overrides: Any
) -> Iterator[str]:
    """Run a service in a thread and yield its URL. `overrides`: fields of the model metadata."""
    num_threads = torch.get_num_threads()
    running: dict[str, Any] = {}
    listening = threading.Event()

    def on_startup(url: str, request_shutdown: Callable[[], None]) -> None:
        running.update(url=url, request_shutdown=request_shutdown)
        listening.set()

    handle = serve_model(model, **overrides)
    config = config or ServeConfig(port=0, drain_timeout_s=5)
    thread = threading.Thread(target=serve, args=(handle, config, api_key, on_startup))
    thread.start()
    try:
        assert listening.wait(20)
        yield running["url"]
    finally:
        running["request_shutdown"]()
        thread.join(20)
        handle.executor.shutdown(wait=False, cancel_futures=True)
        torch.set_num_threads(num_threads)
        assert not thread.is_alive()


@contextmanager
def serving_grpc(model: Any, config: ServeConfig) -> Iterator[tuple[str, int]]:
    """Run a service with the key "secret" and yield its URL and its gRPC port."""
    ports = list[int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "log_event", lambda event, **fields: ports.append(fields.get("grpc_port", 0)))
        with serving(model, api_key="secret", config=config) as url:
            yield url, ports[0]


def random_videos(num_rows: int, num_frames: int, seed: int = 0, size: int = 8, num_views: int = 2) -> np.ndarray:
    """Return noise, uint8 [num_frames, num_rows, num_views, size, size, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (num_frames, num_rows, num_views, size, size, 3), np.uint8)


def frames_by_view(frames: np.ndarray) -> dict[str, np.ndarray]:
    """Convert [N, V, H, W, 3] to the form that clients take: view -> [N, H, W, 3]."""
    return {name: frames[:, i] for i, name in enumerate(("front", "wrist", "side")[: frames.shape[1]])}


def expected_progress(video: np.ndarray, instruction: str = LIFT) -> list[float]:
    """Return the progress that `HashModel` predicts for a clip [T, V, H, W, 3], from frame 1 on."""
    digest, progress = initial_digest(instruction, video[0]), []
    for frames in video[1:]:
        digest = next_digest(digest, frames)
        progress.append(float(digest_to_progress(np.array([digest]))[0]))
    return progress
