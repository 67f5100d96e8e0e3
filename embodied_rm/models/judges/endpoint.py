"""`EndpointChat`: a vision-language model behind an OpenAI-compatible endpoint (vLLM, SGLang, and hosted ones)."""

from __future__ import annotations

import base64
import io
import math
import os
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from PIL import Image

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, Part, Query
from embodied_rm.serve.client.wire import LOOPBACK
from embodied_rm.types import Frames

LISTED = 20
"""Log-probabilities that are asked for at most, which is what servers give at most."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before the second attempt, and the most before any."""
OVERLOADED, TOO_MANY = (429, 503), 429


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Where the model is and how long it is waited for."""

    url: str
    """Up to the version, e.g. http://localhost:8000/v1."""
    model: str
    """What the endpoint calls it."""
    key_variable: str | None = None
    """Environment variable that holds the key; None: there is none."""
    timeout: float = 60.0
    """Seconds an attempt may take."""
    attempts: int = 4
    """After which a query stays unanswered."""
    concurrency: int = 16
    """Queries that are under way at once: the server makes batches of them."""

    def __post_init__(self) -> None:
        where = urlsplit(self.url)
        if where.scheme not in ("http", "https") or not where.hostname or where.username:
            raise UserError(f"url must be http(s)://host[:port]/v1 without a name and password, got {self.url!r}")
        if self.key_variable is not None and where.scheme == "http" and where.hostname not in LOOPBACK:
            raise UserError(f"a key is not sent in the clear: {self.url} needs https")
        for name in ("timeout", "attempts", "concurrency"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")

    def headers(self) -> dict[str, str]:
        """What says who asks. Raises `UserError` where the key is not there."""
        key = key_in(self.key_variable)
        return {} if key is None else {"Authorization": f"Bearer {key}"}


def key_in(variable: str | None) -> str | None:
    """The key in an environment variable; None: none is needed. Raises `UserError` where it is not there."""
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UserError(f"the environment variable {variable} is not set: it is to hold the key")
    return key


class EndpointChat:
    """A `Chat`. An attempt that fails is repeated after a pause that doubles, or as long as the server asks for."""

    def __init__(self, config: EndpointConfig) -> None:
        """Raises `UserError` without httpx or the key."""
        try:
            import httpx  # optional
        except ModuleNotFoundError as fault:
            raise UserError("an endpoint is asked by httpx: pip install 'embodied-rm[endpoint]'") from fault
        self.config, self._httpx = config, httpx
        self._client = httpx.Client(
            base_url=config.url.rstrip("/") + "/",
            headers=config.headers(),
            timeout=config.timeout,
            limits=httpx.Limits(max_connections=config.concurrency),
        )
        self._threads = ThreadPoolExecutor(config.concurrency, thread_name_prefix="endpoint")

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer each, in order. Raises `UserError` where the endpoint refuses what is asked (status 4xx)."""
        return list(self._threads.map(self._answered, queries))

    def _answered(self, query: Query) -> Answer:
        body, answer = request(query, self.config.model), Answer(fault="unreachable")
        for attempt in range(self.config.attempts):
            answer, pause = self._attempt(query, body)
            if answer.fault is None or answer.fault == "unlisted":
                break
            if attempt + 1 < self.config.attempts:
                doubled = FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.5)
                time.sleep(min(doubled if pause is None else pause, LONGEST_PAUSE))
        return answer

    def _attempt(self, query: Query, body: dict[str, Any]) -> tuple[Answer, float | None]:
        """An answer, and the seconds that the server asks to wait for, if it does."""
        try:
            response = self._client.post("chat/completions", json=body)
        except self._httpx.TimeoutException:
            return Answer(fault="timeout"), None
        except self._httpx.TransportError:
            return Answer(fault="unreachable"), None
        if response.status_code in OVERLOADED:
            return Answer(fault="overloaded"), seconds(response.headers.get("Retry-After"))
        if response.status_code >= 500:
            return Answer(fault="server error"), None
        if not response.is_success:
            raise UserError(f"{self.config.url} refuses ({response.status_code}): {response.text[:300]}")
        try:
            return read(query, response.json()["choices"][0]), None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return Answer(fault="malformed"), None


def request(query: Query, model: str) -> dict[str, Any]:
    """The body of a chat completion."""
    system = [{"role": "system", "content": query.system}] if query.system else []
    body: dict[str, Any] = {
        "model": model,
        "messages": [*system, {"role": "user", "content": [_content(part) for part in query.parts]}],
        "max_tokens": query.max_tokens,
        "temperature": 0,
    }
    if query.choices:
        body |= {"max_tokens": 1, "logprobs": True, "top_logprobs": LISTED}
    return body


def read(query: Query, choice: dict[str, Any]) -> Answer:
    """The answer in a chat completion's choice. Raises what reading a malformed one raises."""
    if not query.choices:
        text = choice["message"]["content"]
        if not isinstance(text, str):
            raise TypeError(f"content is {type(text).__name__}")
        return Answer(text=text)
    tops = choice["logprobs"]["content"][0]["top_logprobs"]
    listed = [(str(top["token"]).strip(), float(top["logprob"])) for top in tops]
    # " yes" and "yes" are two tokens and one answer; beside one that is listed, one that is not counts nothing.
    found = {word: sum(math.exp(value) for token, value in listed if token == word) for word in query.choices}
    if not any(found.values()):
        return Answer(fault="unlisted")
    return Answer(logprobs={word: math.log(chance) if chance else -math.inf for word, chance in found.items()})


def seconds(retry_after: str | None) -> float | None:
    """What a Retry-After header asks for; a date is not read."""
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None


def _content(part: Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.ndim == 4:
        raise UserError("an endpoint is shown pictures, not films")
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png(part)).decode()}"}}


def png(picture: Frames) -> bytes:
    """A picture uint8 [H, W, 3], without loss."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
