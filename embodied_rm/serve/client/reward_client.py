"""Speaks to a reward service. What it returns was judged; where it cannot be, it waits, and then raises."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import httpx
import numpy as np

from embodied_rm.serve.client.client_errors import (
    EpisodeLostError,
    OutOfOrderError,
    ServiceError,
    ServiceUnavailableError,
)
from embodied_rm.serve.client.prediction import Frames, RewardPrediction
from embodied_rm.serve.client.wire import (
    BINARY_CONTENT_TYPE,
    HEADER_LENGTH_HEADER,
    LOOPBACK_HOSTS,
    TIMEOUT_HEADER,
    BytesLike,
    Message,
    decode_response,
    encode_request,
)

CHUNK_BYTES = 1 << 22
"""Bytes that are sent at once."""
RETRY_STATUSES = (408, 429, 502, 503, 504)
"""Statuses after which a request is sent again: the service is full, restarting or slow."""
PROXY_RETRY_STATUS = 500
"""Another such, unless the service itself says so: where one of several breaks, who stands before them answers that."""
SESSION_HEADER = "X-Session-Id"
"""Header by which who stands before several services sends all of a run to one of them, as Ray Serve does."""
MIN_RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.05, 2.0
"""Seconds before the first retry; each pause is twice the one before, and less by chance."""


class RewardClient:
    """A connection to a reward service, for one run.

    A request that may have been lost is sent again, with the same run, environment, episode and step: the service
    answers it once, and the same. While the service cannot be reached, or takes no requests, a call blocks, up to
    `patience` seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: Optional[str] = None,
        client_id: Optional[str] = None,
        retry_timeout_s: float = 60.0,
        request_timeout_s: float = 30.0,
    ) -> None:
        """`key`: the service's, if it has one; `run`: a name that no other client has, by default made by chance;
        `timeout`: seconds that one attempt may take. Raises `ValueError` for a key that would be sent in the clear."""
        parsed_url = httpx.URL(url)
        if api_key is not None and parsed_url.scheme != "https" and parsed_url.host not in LOOPBACK_HOSTS:
            raise ValueError(f"a key is not sent in the clear: {url} needs https, or a tunnel to this machine")
        self.client_id = client_id or secrets.token_hex(16)
        self.num_retries = 0
        """Attempts after the first one, of all requests."""
        self._retry_timeout_s, self._request_timeout_s = retry_timeout_s, request_timeout_s
        headers = {SESSION_HEADER: self.client_id} | ({} if api_key is None else {"Authorization": f"Bearer {api_key}"})
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=request_timeout_s, trust_env=False)
        self._random = random.Random()

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. Episodes that were not ended are forgotten by the service after a while."""
        self._http.close()

    def get_metadata(self) -> dict[str, Any]:
        """The model that is served: its name, version, views, and whether it tells success."""
        response_json = json.loads(self._send("GET", "/v1/metadata").content)
        return dict(response_json)

    def reset(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        instructions: Sequence[str],
        frames: Frames,
        *,
        return_state: bool = False,
    ) -> RewardPrediction:
        """Open an episode in each of N environments, at its first frame; episodes of one are numbered upwards.

        `state`: whether what the service remembers is sent along, so that it can be sent back with `restore`.
        """
        header = {
            "env_ids": list(env_ids),
            "episode_ids": list(episode_ids),
            "instructions": list(instructions),
            "return_state": return_state,
        }
        return self._predict("reset", header, frames)

    def step(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        steps: Sequence[int],
        frames: Frames,
        *,
        return_state: bool = False,
    ) -> RewardPrediction:
        """Judge one more frame of each, the `step`-th after the first.

        Raises `LostError` where the service knows nothing of an episode, `OutOfStepError` where it is at another step.
        """
        header = {
            "env_ids": list(env_ids),
            "episode_ids": list(episode_ids),
            "steps": list(steps),
            "return_state": return_state,
        }
        return self._predict("step", header, frames)

    def end(self, env_ids: Sequence[int], episode_ids: Sequence[int]) -> None:
        """Have episodes forgotten."""
        self._post(
            "end",
            encode_request(
                {"client_id": self.client_id, "env_ids": list(env_ids), "episode_ids": list(episode_ids)}, []
            ),
        )

    def restore(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        steps: Sequence[int],
        *,
        state: bytes,
        num_state_rows: int,
        state_rows: Sequence[int],
    ) -> None:
        """Send back what the service remembered of `rows` episodes: of these, number `row` is each environment's."""
        header = {
            "client_id": self.client_id,
            "env_ids": list(env_ids),
            "episode_ids": list(episode_ids),
            "steps": list(steps),
        }
        self._post(
            "restore",
            encode_request(
                {**header, "num_state_rows": num_state_rows, "state_rows": list(state_rows), "state_bytes": len(state)},
                [state],
            ),
        )

    def _predict(self, endpoint: str, header: dict[str, Any], frames: Frames) -> RewardPrediction:
        shape, blobs = encode_frames(frames)
        metadata = {
            "client_id": self.client_id,
            **header,
            "views": list(frames),
            "frames": {"shape": shape, "view_major": True},
        }
        response = self._post(endpoint, encode_request(metadata, blobs))
        metadata, columns, trailing_bytes = decode_response(
            response.content, int(response.headers[HEADER_LENGTH_HEADER])
        )
        for name in ("success", "ood"):
            columns[name] = np.where(columns[name] < 0, np.float32(np.nan), columns[name])
        return RewardPrediction(**columns, state=bytes(trailing_bytes) if metadata["state_bytes"] else None)

    def _post(self, endpoint: str, message: Message) -> httpx.Response:
        header_json, blobs = message
        headers = {
            "Content-Type": BINARY_CONTENT_TYPE,
            HEADER_LENGTH_HEADER: str(len(header_json)),
            TIMEOUT_HEADER: str(int(self._request_timeout_s * 1000)),
        }
        headers["Content-Length"] = str(len(header_json) + sum(map(len, blobs)))
        return self._send("POST", f"/v1/{endpoint}", [header_json, *blobs], headers)

    def _send(
        self, method: str, path: str, content: Sequence[BytesLike] = (), headers: Optional[dict[str, str]] = None
    ) -> httpx.Response:
        """The answer, however often it takes."""
        deadline, delay_s = time.monotonic() + self._retry_timeout_s, MIN_RETRY_DELAY_S
        while True:
            try:
                response = self._http.request(method, path, content=iter_chunks(content), headers=headers)
            except httpx.TransportError as error:
                reason, wait_s = f"cannot be reached ({error})", 0.0
            else:
                if response.status_code < 300:
                    return response
                if not is_retryable(response):
                    raise error_from_response(response)
                reason = f"takes no requests ({response.status_code}: {error_body(response).get('error')})"
                wait_s = retry_after_seconds(response)
            wait_s = max(wait_s, delay_s * self._random.uniform(0.5, 1.0))
            if time.monotonic() + wait_s > deadline:
                raise ServiceUnavailableError(f"the reward service {reason}, and that for {self._retry_timeout_s:g} s")
            time.sleep(wait_s)
            delay_s = min(2 * delay_s, MAX_RETRY_DELAY_S)
            self.num_retries += 1


def encode_frames(frames: Frames) -> tuple[list[int], list[BytesLike]]:
    """The shape [N, V, H, W, 3] of all frames, and each view's pixels. Raises `ValueError` for what is none."""
    arrays = [np.ascontiguousarray(view) for view in frames.values()]
    shapes = {view.shape for view in arrays}
    if len(shapes) != 1 or any(view.dtype != np.uint8 or view.ndim != 4 for view in arrays):
        descriptions = ", ".join(f"{name}: {view.dtype} {list(view.shape)}" for name, view in zip(frames, arrays))
        raise ValueError(f"frames must be uint8 [N, H, W, 3], of one shape in all views, got {descriptions or 'none'}")
    num_rows, *size = arrays[0].shape
    return [num_rows, len(arrays), *size], [view.data.cast("B") for view in arrays]


def iter_chunks(content: Sequence[BytesLike]) -> Iterator[bytes]:
    """The bytes one after the other, in pieces: the service reads one while the next is copied."""
    for blob in content:
        view = memoryview(blob)
        for start in range(0, len(view), CHUNK_BYTES):
            yield bytes(view[start : start + CHUNK_BYTES])


def is_retryable(response: httpx.Response) -> bool:
    """Whether the same request may be answered later."""
    status = response.status_code
    return status in RETRY_STATUSES or (status == PROXY_RETRY_STATUS and not error_body(response))


def error_from_response(response: httpx.Response) -> ServiceError:
    """What the service says of a request that it does not take."""
    body, status = error_body(response), response.status_code
    message = f"{body.get('error') or response.reason_phrase} ({status})"
    if status == 410:
        return EpisodeLostError(message, body.get("env_ids", []))
    if status == 409:
        return OutOfOrderError(message, status)
    return ServiceError(message, status)


def error_body(response: httpx.Response) -> dict[str, Any]:
    """The JSON of a refusal; empty where somebody else refuses, between us and the service."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def retry_after_seconds(response: httpx.Response) -> float:
    """Seconds that a service asks to wait."""
    retry_after = response.headers.get("Retry-After", "")
    return float(retry_after) if retry_after.isdigit() else 0.0
