"""Narrow limits of a service, and a good request to it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
from known_models import digest_to_progress, initial_digest, next_digest
from services import by_view, videos

from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.serve.client.wire import HEADER_LENGTH_HEADER
from embodied_rm.serve.service_config import ServeLimits

LIFT = "lift the red cube"
BINARY = "application/octet-stream"
SMALL = ServeLimits(
    max_body_mb=0.25,
    max_header_kb=4,
    max_envs_per_request=8,
    max_views=3,
    max_image_side=64,
    max_frames=6,
    max_instruction_chars=40,
    body_timeout_s=0.6,
    max_connections=40,
)
VIDEO = videos(2, 2)
GOOD: dict[str, Any] = {
    "client_id": "r",
    "env_ids": [0, 1],
    "episode_ids": [3, 4],
    "instructions": [LIFT, "open it"],
    "views": ["front", "wrist"],
    "frames": {"shape": [2, 2, 8, 8, 3]},
}
PIXELS = VIDEO[0].tobytes()


def post(url: str, header: Any, blob: bytes = PIXELS, endpoint: str = "reset", **headers: str) -> httpx.Response:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    sent = {HEADER_LENGTH_HEADER: str(len(text)), "content-type": BINARY, **headers}
    return httpx.post(f"{url}/v1/{endpoint}", content=text + blob, headers=sent)


def judges_as_ever(url: str) -> bool:
    """Whether a good episode is judged as by the formula."""
    with RewardClient(url) as client:
        client.reset([0], [0], [LIFT], by_view(VIDEO[0, :1]))
        said = client.step([0], [0], [1], by_view(VIDEO[1, :1]))
    digest = next_digest(initial_digest(LIFT, VIDEO[0, 0]), VIDEO[1, 0])
    return abs(float(said.progress[0]) - float(digest_to_progress(np.array([digest]))[0])) < 1e-7
