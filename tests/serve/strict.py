"""Narrow limits of a service, and a valid request."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
from known_models import digest_to_progress, initial_digest, next_digest
from services import frames_by_view, random_videos

from embodied_rm.client.reward_client import RewardClient
from embodied_rm.client.wire import HEADER_LENGTH_HEADER
from embodied_rm.serve.service_config import ServeLimits

LIFT = "lift the red cube"
BINARY = "application/octet-stream"
SMALL_LIMITS = ServeLimits(
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
VIDEO = random_videos(2, 2)
VALID_HEADER: dict[str, Any] = {
    "client_id": "r",
    "env_ids": [0, 1],
    "episode_ids": [3, 4],
    "instructions": [LIFT, "open it"],
    "views": ["front", "wrist"],
    "frames": {"shape": [2, 2, 8, 8, 3]},
}
PIXELS = VIDEO[0].tobytes()


def post(url: str, header: Any, blob: bytes = PIXELS, endpoint: str = "reset", **headers: str) -> httpx.Response:
    """Send a request of the session API. `header`: JSON data, or raw bytes in place of the JSON."""
    header_json = header if isinstance(header, bytes) else json.dumps(header).encode()
    all_headers = {HEADER_LENGTH_HEADER: str(len(header_json)), "content-type": BINARY, **headers}
    return httpx.post(f"{url}/v1/{endpoint}", content=header_json + blob, headers=all_headers)


def scores_valid_episode(url: str) -> bool:
    """Return whether the service scores a valid episode as `HashModel` does."""
    with RewardClient(url) as client:
        client.reset([0], [0], [LIFT], frames_by_view(VIDEO[0, :1]))
        prediction = client.step([0], [0], [1], frames_by_view(VIDEO[1, :1]))
    digest = next_digest(initial_digest(LIFT, VIDEO[0, 0]), VIDEO[1, 0])
    return abs(float(prediction.progress[0]) - float(digest_to_progress(np.array([digest]))[0])) < 1e-7
