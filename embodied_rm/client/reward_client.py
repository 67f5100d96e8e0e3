"""HTTP client of the reward service. It retries while the service is unavailable, then raises."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

import httpx
import numpy as np

from . import wire
from .arrays import to_numpy
from .bounded_http import parse_retry_after, send_request
from .client_errors import (
    EpisodeLostError,
    OutOfOrderError,
    ServiceError,
    ServiceUnavailableError,
    UnexpectedResponseError,
)
from .response_checks import check_columns, check_parameters, is_list_of
from .wire import BytesLike, Frames, Message, RewardPrediction, decode_response, encode_request

MAX_RESPONSE_BYTES = 1 << 30
"""Bytes of a response: the states of all environments of a request are the largest."""
MAX_REASON_CHARS = 120
"""Characters that a message quotes of why a response cannot be read."""
CHUNK_BYTES = 1 << 22
"""Bytes per chunk of an upload."""
RETRY_STATUSES = (408, 429, 502, 503, 504)
"""Statuses that are retried: the service is full, restarting or slow."""
PROXY_RETRY_STATUS = 500
"""Retried unless the body is JSON: a load balancer reports a failed replica by it, without JSON."""
SESSION_HEADER = "X-Session-Id"
"""Header by which a load balancer such as Ray Serve sends all requests of a client to one replica."""
MIN_RETRY_DELAY_S, MAX_RETRY_DELAY_S = 0.05, 2.0
"""Seconds before the first retry, and at most; the delay doubles per retry, with jitter."""


class RewardClient:
    """Connection of one client to a reward service.

    Lost requests are sent again with the same client id, environment, episode and step; the service scores them once.
    While the service is unavailable, a call blocks for up to `retry_timeout_s`, then raises `ServiceUnavailableError`.
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
        """Create a client. Nothing is sent yet.

        Args:
            url: address of the service, e.g. "http://127.0.0.1:8080".
            api_key: API key of the service, if it has one.
            client_id: unique name of this client. None: a random one.
            retry_timeout_s: seconds of retries after which a call raises.
            request_timeout_s: seconds per attempt.

        Raises:
            ValueError: the key would be sent without TLS to another machine.
        """
        parsed_url = httpx.URL(url)
        if api_key is not None and parsed_url.scheme != "https" and parsed_url.host not in wire.LOOPBACK_HOSTS:
            raise ValueError(f"a key is not sent without TLS: {url} needs https, or a tunnel to this machine")
        self.client_id = client_id or secrets.token_hex(16)
        self.num_retries = 0
        """Number of retries, over all requests."""
        self._retry_timeout_s, self._request_timeout_s = retry_timeout_s, request_timeout_s
        headers = {SESSION_HEADER: self.client_id} | ({} if api_key is None else {"Authorization": f"Bearer {api_key}"})
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=request_timeout_s, trust_env=False)
        self._random = random.Random()

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Address of the service."""
        return str(self._http.base_url)

    def close(self) -> None:
        """Close the connection. The service evicts episodes that were not ended after some time."""
        self._http.close()

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the model: name, version, views and capabilities."""
        with unexpected_responses(self.url):
            metadata = dict(json.loads(self._send("GET", "/v1/metadata").content))
            check_parameters(metadata["parameters"])
            return metadata

    def reset(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        instructions: Sequence[str],
        frames: Frames,
        *,
        return_state: bool = False,
    ) -> RewardPrediction:
        """Start an episode in each of N environments.

        Args:
            env_ids: N distinct environments of this client.
            episode_ids: episode number per environment; it must increase.
            instructions: one per environment.
            frames: view -> uint8 [N, H, W, 3], the first frames.
            return_state: whether to return the states, for a later `restore`.
        """
        fields = {"instructions": list(instructions), "return_state": return_state}
        return self._predict("reset", self._header(env_ids, episode_ids, **fields), frames)

    def step(
        self,
        env_ids: Sequence[int],
        episode_ids: Sequence[int],
        steps: Sequence[int],
        frames: Frames,
        *,
        return_state: bool = False,
    ) -> RewardPrediction:
        """Score one more frame per environment.

        Args:
            env_ids: N distinct environments of this client.
            episode_ids: episode number per environment.
            steps: number of the frame per environment; the first frame is 0.
            frames: view -> uint8 [N, H, W, 3].
            return_state: whether to return the states, for a later `restore`.

        Raises:
            EpisodeLostError: the service has no state of an episode.
            OutOfOrderError: the service is at another step of an episode.
        """
        fields = {"steps": list(steps), "return_state": return_state}
        return self._predict("step", self._header(env_ids, episode_ids, **fields), frames)

    def end(self, env_ids: Sequence[int], episode_ids: Sequence[int]) -> None:
        """End episodes."""
        self._post("end", encode_request(self._header(env_ids, episode_ids), []))

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
        """Restore episodes: environment i gets row `state_rows[i]` of the `num_state_rows` rows of `state`."""
        fields = {"steps": list(steps), "num_state_rows": num_state_rows, "state_rows": list(state_rows)}
        header = self._header(env_ids, episode_ids, **fields, state_bytes=len(state))
        self._post("restore", encode_request(header, [state]))

    def _header(self, env_ids: Sequence[int], episode_ids: Sequence[int], **fields: Any) -> dict[str, Any]:
        return {"client_id": self.client_id, "env_ids": list(env_ids), "episode_ids": list(episode_ids), **fields}

    def _predict(self, endpoint: str, header: dict[str, Any], frames: Frames) -> RewardPrediction:
        shape, blobs = encode_frames(frames)
        request_header = {**header, "views": list(frames), "frames": {"shape": shape, "view_major": True}}
        response = self._post(endpoint, encode_request(request_header, blobs))
        with unexpected_responses(self.url):
            header_length = int(response.headers[wire.HEADER_LENGTH_HEADER])
            metadata, columns, trailing_bytes = decode_response(response.content, header_length)
            check_columns(columns, len(header["env_ids"]))
            if metadata["state_bytes"] != len(trailing_bytes) or (header["return_state"] and not trailing_bytes):
                raise ValueError(f"state_bytes={metadata['state_bytes']!r} of {len(trailing_bytes)}")
            for name in ("success", "ood"):
                columns[name] = np.where(columns[name] < 0, np.float32(np.nan), columns[name])
            return RewardPrediction(**columns, state=bytes(trailing_bytes) if metadata["state_bytes"] else None)

    def _post(self, endpoint: str, message: Message) -> httpx.Response:
        header_json, blobs = message
        headers = {
            "Content-Type": wire.BINARY_CONTENT_TYPE,
            wire.HEADER_LENGTH_HEADER: str(len(header_json)),
            wire.TIMEOUT_HEADER: str(int(self._request_timeout_s * 1000)),
            "Content-Length": str(len(header_json) + sum(map(len, blobs))),
        }
        return self._send("POST", f"/v1/{endpoint}", [header_json, *blobs], headers)

    def _send(
        self, method: str, path: str, content: Sequence[BytesLike] = (), headers: Optional[dict[str, str]] = None
    ) -> httpx.Response:
        """Send a request until it is answered."""
        deadline, delay_s = time.monotonic() + self._retry_timeout_s, MIN_RETRY_DELAY_S
        while True:
            try:
                response = send_request(
                    self._http,
                    method,
                    path,
                    timeout_s=self._request_timeout_s,
                    max_bytes=MAX_RESPONSE_BYTES,
                    content=iter_chunks(content),
                    headers=headers,
                )
            except UnexpectedResponseError as error:
                raise not_a_service(self.url, error) from None
            except httpx.TransportError as error:
                reason, wait_s = f"cannot be reached ({error})", 0.0
            else:
                if response.status_code < 300:
                    return response
                if not is_retryable(response):
                    raise error_from_response(response)
                reason = f"accepts no requests ({response.status_code}: {error_body(response).get('error')})"
                wait_s = parse_retry_after(response.headers.get("Retry-After")) or 0.0
            wait_s = max(wait_s, delay_s * self._random.uniform(0.5, 1.0))
            if time.monotonic() + wait_s > deadline:
                raise ServiceUnavailableError(f"the reward service {reason}, for {self._retry_timeout_s:g} s")
            time.sleep(wait_s)
            delay_s = min(2 * delay_s, MAX_RETRY_DELAY_S)
            self.num_retries += 1


def encode_frames(frames: Frames) -> tuple[list[int], list[BytesLike]]:
    """Return the shape [N, V, H, W, 3] and the pixels per view. Raises `ValueError` for invalid frames."""
    arrays = [np.ascontiguousarray(to_numpy(view)) for view in frames.values()]
    shapes = {view.shape for view in arrays}
    if len(shapes) != 1 or any(view.dtype != np.uint8 or view.ndim != 4 for view in arrays):
        descriptions = ", ".join(f"{name}: {view.dtype} {list(view.shape)}" for name, view in zip(frames, arrays))
        raise ValueError(f"frames must be uint8 [N, H, W, 3], of one shape in all views, got {descriptions or 'none'}")
    num_rows, *size = arrays[0].shape
    return [num_rows, len(arrays), *size], [view.data.cast("B") for view in arrays]


def iter_chunks(content: Sequence[BytesLike]) -> Iterator[bytes]:
    """Yield the bytes in chunks: the service reads one while the next is copied."""
    for blob in content:
        view = memoryview(blob)
        for start in range(0, len(view), CHUNK_BYTES):
            yield bytes(view[start : start + CHUNK_BYTES])


def is_retryable(response: httpx.Response) -> bool:
    """Return whether a retry of the request may succeed."""
    status = response.status_code
    return status in RETRY_STATUSES or (status == PROXY_RETRY_STATUS and not error_body(response))


def error_from_response(response: httpx.Response) -> ServiceError:
    """Return the exception for an error response."""
    body, status = error_body(response), response.status_code
    message = f"{body.get('error') or response.reason_phrase} ({status})"
    if status == 410:
        env_ids: Any = body.get("env_ids")
        return EpisodeLostError(message, env_ids if is_list_of(env_ids, int) else [])
    if status == 409:
        return OutOfOrderError(message, status)
    return ServiceError(message, status)


def error_body(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON of an error response; empty if it is from a proxy."""
    try:
        body = response.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


@contextmanager
def unexpected_responses(url: str) -> Iterator[None]:
    """Raise `UnexpectedResponseError` for a response that cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise not_a_service(url, error) from None


def not_a_service(url: str, reason: Exception) -> UnexpectedResponseError:
    """Return the error for a server that answers otherwise than a reward service."""
    text = " ".join(f"{type(reason).__name__}: {reason}"[:MAX_REASON_CHARS].split())
    return UnexpectedResponseError(f"{url} is no reward service of embodied_rm: its response cannot be read ({text})")
