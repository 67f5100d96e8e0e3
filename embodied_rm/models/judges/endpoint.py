"""`EndpointChat`: a vision-language model behind an OpenAI-compatible endpoint (vLLM, SGLang, and hosted ones)."""

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

import httpx
from PIL import Image

from embodied_rm.client.wire import LOOPBACK_HOSTS
from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, ContentPart, Query

MAX_TOP_LOGPROBS = 20  # number of log-probabilities requested: the maximum that servers return
INITIAL_BACKOFF_S = 0.5  # wait before the second attempt; it doubles with every attempt
MAX_BACKOFF_S = 30.0
OVERLOADED_STATUSES = (429, 503)


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Address of a model and limits of its requests."""

    url: str  # Base URL including the version, e.g. http://localhost:8000/v1.
    model: str  # name of the model at the endpoint
    api_key_env: str | None = None  # Environment variable that holds the API key. None: no key.
    timeout_s: float = 60.0  # maximum duration of an attempt, in seconds
    max_attempts: int = 4  # number of attempts before a query is left unanswered
    concurrency: int = 16  # number of parallel requests; the server batches them

    def __post_init__(self) -> None:
        parsed_url = urlsplit(self.url)
        if parsed_url.scheme not in ("http", "https") or not parsed_url.hostname or parsed_url.username:
            raise UserError(f"url must be http(s)://host[:port]/v1 without a name and password, got {self.url!r}")
        if self.api_key_env is not None and parsed_url.scheme == "http" and parsed_url.hostname not in LOOPBACK_HOSTS:
            raise UserError(f"an API key is not sent unencrypted: {self.url} needs https")
        for name in ("timeout_s", "max_attempts", "concurrency"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")

    def headers(self) -> dict[str, str]:
        """Return the authorization header, if there is a key."""
        key = read_api_key(self.api_key_env)
        return {} if key is None else {"Authorization": f"Bearer {key}"}


def read_api_key(variable: str | None) -> str | None:
    """Return the API key in an environment variable, None if none is named; `UserError` if it is not set."""
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UserError(f"the environment variable {variable} is not set; it must hold the API key")
    return key


class EndpointChat:
    """A `ChatModel` behind an endpoint. A failed attempt is repeated after a growing wait, or the one requested."""

    def __init__(self, config: EndpointConfig) -> None:
        """Open the HTTP client; `UserError` if the API key is missing."""
        self.config = config
        self._client = httpx.Client(
            base_url=config.url.rstrip("/") + "/",
            headers=config.headers(),
            timeout=config.timeout_s,
            limits=httpx.Limits(max_connections=config.concurrency),
        )
        self._executor = ThreadPoolExecutor(config.concurrency, thread_name_prefix="endpoint")

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order; `UserError` if the endpoint rejects a request (status 4xx)."""
        return list(self._executor.map(self._answer_with_retries, queries))

    def _answer_with_retries(self, query: Query) -> Answer:
        body, answer = request_body(query, self.config.model), Answer(failure="unreachable")
        for attempt in range(self.config.max_attempts):
            answer, retry_after_s = self._send(query, body)
            if answer.failure is None or answer.failure == "unlisted":
                break
            if attempt + 1 < self.config.max_attempts:
                backoff_s = INITIAL_BACKOFF_S * 2**attempt * random.uniform(0.5, 1.5)
                time.sleep(min(backoff_s if retry_after_s is None else retry_after_s, MAX_BACKOFF_S))
        return answer

    def _send(self, query: Query, body: dict[str, Any]) -> tuple[Answer, float | None]:
        """Return the answer of one attempt, and the wait that the server requests, in seconds, if any."""
        try:
            response = self._client.post("chat/completions", json=body)
        except httpx.TimeoutException:
            return Answer(failure="timeout"), None
        except httpx.TransportError:
            return Answer(failure="unreachable"), None
        if response.status_code in OVERLOADED_STATUSES:
            return Answer(failure="overloaded"), parse_retry_after(response.headers.get("Retry-After"))
        if response.status_code >= 500:
            return Answer(failure="server error"), None
        if not response.is_success:
            raise UserError(f"{self.config.url} rejected the request ({response.status_code}): {response.text[:300]}")
        try:
            return parse_completion(query, response.json()["choices"][0]), None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            return Answer(failure="malformed"), None


def request_body(query: Query, model: str) -> dict[str, Any]:
    """Return the body of a chat completion request."""
    system_messages = [{"role": "system", "content": query.system}] if query.system else []
    body: dict[str, Any] = {
        "model": model,
        "messages": [*system_messages, {"role": "user", "content": [_content_part(part) for part in query.parts]}],
        "max_tokens": query.max_tokens,
        "temperature": 0,
    }
    if query.choices:
        body |= {"max_tokens": 1, "logprobs": True, "top_logprobs": MAX_TOP_LOGPROBS}
    return body


def parse_completion(query: Query, choice: dict[str, Any]) -> Answer:
    """Return the answer in one choice of a chat completion.

    Raises:
        ValueError, KeyError, IndexError, TypeError, AttributeError: If the choice is malformed.
    """
    if not query.choices:
        text = choice["message"]["content"]
        if not isinstance(text, str):
            raise TypeError(f"content is {type(text).__name__}")
        return Answer(text=text)
    top_logprobs = choice["logprobs"]["content"][0]["top_logprobs"]
    token_logprobs = [(str(top["token"]).strip(), float(top["logprob"])) for top in top_logprobs]
    # " yes" and "yes" are two tokens of one answer. An unlisted choice has probability 0 if another one is listed.
    probabilities = {
        option: sum(math.exp(value) for token, value in token_logprobs if token == option) for option in query.choices
    }
    if not any(probabilities.values()):
        return Answer(failure="unlisted")
    return Answer(logprobs={option: math.log(p) if p else -math.inf for option, p in probabilities.items()})


def parse_retry_after(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None if it is missing or a date."""
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None


def _content_part(part: ContentPart) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.ndim == 4:
        raise UserError("an endpoint takes images, not videos")
    png = io.BytesIO()
    Image.fromarray(part).save(png, "PNG", compress_level=1)
    content = base64.b64encode(png.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
