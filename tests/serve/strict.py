"""Narrow limits of a service, and a good request to it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
from known_models import first, following, share
from services import by_view, films

from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.serve.client.wire import LENGTH
from embodied_rm.serve.config import Limits

LIFT = "lift the red cube"
BINARY = "application/octet-stream"
SMALL = Limits(body_mb=0.25, header_kb=4, rows=8, views=3, side=64, frames=6, text=40, body_s=0.6, connections=40)
FILM = films(2, 2)
GOOD: dict[str, Any] = {
    "run": "r",
    "env": [0, 1],
    "episode": [3, 4],
    "instruction": [LIFT, "open it"],
    "views": ["front", "wrist"],
    "frames": {"shape": [2, 2, 8, 8, 3]},
}
PIXELS = FILM[0].tobytes()


def post(url: str, header: Any, blob: bytes = PIXELS, asked: str = "begin", **headers: str) -> httpx.Response:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    sent = {LENGTH: str(len(text)), "content-type": BINARY, **headers}
    return httpx.post(f"{url}/v1/{asked}", content=text + blob, headers=sent)


def judges_as_ever(url: str) -> bool:
    """Whether a good episode is judged as by the formula."""
    with RewardClient(url) as client:
        client.begin([0], [0], [LIFT], by_view(FILM[0, :1]))
        said = client.advance([0], [0], [1], by_view(FILM[1, :1]))
    digest = following(first(LIFT, FILM[0, 0]), FILM[1, 0])
    return abs(float(said.value[0]) - float(share(np.array([digest]))[0])) < 1e-7
