"""`EndpointChat`: a vision-language model behind an OpenAI-compatible endpoint (vLLM, SGLang, and hosted ones)."""

import itertools
import math
import os
import random
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from embodied_rm.client.bounded_http import parse_retry_after, send_request
from embodied_rm.client.client_errors import UnexpectedResponseError
from embodied_rm.client.deadlines import enforce_time_limits
from embodied_rm.client.wire import LOOPBACK_HOSTS
from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.parse import conclusion_start, fold_choice
from embodied_rm.models.judges.request_body import RequestParameters, build_messages

INITIAL_BACKOFF_S = 0.5  # wait before the second attempt; it doubles with every attempt
MAX_BACKOFF_S = 30.0
OVERLOADED_STATUSES = (429, 503)
TIMEOUT_STATUS = 408
REJECTED_STATUSES = (400, 409, 413, 422, 424, 451)
"""Statuses of one request that is too large, moderated or otherwise not accepted; others may be answered."""
FORBIDDEN_STATUS = 403
"""Status of one moderated request if others were answered, or its text says so; else of a key without a right."""
MODERATION_PATTERN = re.compile("moderat|flagged|policy|safety", re.IGNORECASE)
MAX_FIRST_REJECTIONS = 8
"""Rejected requests, without any answer, after which the endpoint is considered to answer none."""
FINAL_FAILURES = ("unlisted", "rejected")
"""Failures that another attempt would repeat."""
MAX_RESPONSE_BYTES = 1 << 24  # of an answer, with its log-probabilities
MAX_REASON_BYTES = 1 << 12  # of a refusal that are read: its reason comes first
MAX_ROUNDED_LOGPROB = 1e-3  # servers round the logarithm of 1 to about 0
MAX_UNLISTED_SHARE = 0.01
"""Largest probability that an unlisted choice may have, relative to those of the listed ones. It then counts as 0."""
MODERATED_REASON = "content_filter"  # finish_reason of an answer that the server withholds


@dataclass(frozen=True, kw_only=True)
class EndpointConfig:
    """Address of a model and limits of its requests."""

    url: str  # Base URL including the version, e.g. http://localhost:8000/v1.
    model: str  # name of the model at the endpoint
    api_key_env: str | None = None  # Environment variable that holds the API key. None: no key.
    timeout_s: float = 60.0  # maximum duration of an attempt, in seconds
    max_attempts: int = 4  # number of attempts before a query is left unanswered
    concurrency: int = 16  # number of parallel requests; the server batches them
    reasoning_tokens: int = 0  # tokens that a reasoning model may generate before its answer

    def __post_init__(self) -> None:
        parsed_url = urlsplit(self.url)
        if parsed_url.scheme not in ("http", "https") or not parsed_url.hostname or parsed_url.username:
            raise UserError(f"url must be http(s)://host[:port]/v1 without a name and password, got {self.url!r}")
        if self.api_key_env is not None and parsed_url.scheme == "http" and parsed_url.hostname not in LOOPBACK_HOSTS:
            raise UserError(f"an API key is not sent unencrypted: {self.url} needs https")
        for name in ("timeout_s", "max_attempts", "concurrency"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.reasoning_tokens < 0:
            raise UserError(f"reasoning_tokens must be >= 0, got {self.reasoning_tokens}")

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
        self._client = enforce_time_limits(
            httpx.Client(
                base_url=config.url.rstrip("/") + "/",
                headers=config.headers(),
                timeout=config.timeout_s,
                limits=httpx.Limits(max_connections=config.concurrency),
            )
        )
        self._executor = ThreadPoolExecutor(config.concurrency, thread_name_prefix="endpoint")
        self._parameters = RequestParameters(config.reasoning_tokens)
        self._num_answers = self._num_rejections = 0
        self._is_stopped = threading.Event()  # by Ctrl-C: no further attempt is made

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order. A request that the endpoint rejects has no answer.

        `UserError` if it rejects the key, the model, or all of its first requests.
        """
        try:
            return list(self._executor.map(self._answer_with_retries, queries))
        except KeyboardInterrupt:
            self._is_stopped.set()
            self._executor.shutdown(wait=False, cancel_futures=True)
            raise

    def _answer_with_retries(self, query: Query) -> Answer:
        messages, answer = build_messages(query), Answer(failure="unreachable")
        for attempt in range(self.config.max_attempts):
            answer, retry_after_s = self._send(query, messages)
            if answer.failure is None or answer.failure in FINAL_FAILURES:
                break
            if self._is_stopped.is_set():
                break
            if attempt + 1 < self.config.max_attempts:
                backoff_s = INITIAL_BACKOFF_S * 2**attempt * random.uniform(0.5, 1.5)
                self._is_stopped.wait(min(backoff_s if retry_after_s is None else retry_after_s, MAX_BACKOFF_S))
        return answer

    def _send(self, query: Query, messages: list[dict[str, Any]]) -> tuple[Answer, float | None]:
        """Return the answer of one attempt, and the wait that the server requests, in seconds, if any."""
        body = self._parameters.body(query, messages, self.config.model)
        try:
            timeout_s = self.config.timeout_s
            response = send_request(
                self._client, "POST", "chat/completions", timeout_s=timeout_s, max_bytes=MAX_RESPONSE_BYTES, json=body
            )
        except httpx.TimeoutException:
            return Answer(failure="timeout"), None
        except httpx.TransportError:
            return Answer(failure="unreachable"), None
        except UnexpectedResponseError:
            return Answer(failure="malformed"), None
        if response.status_code == 400 and self._parameters.learn(body, read_reason(response)):
            return self._send(query, messages)
        if not response.is_success:
            return self._read_failure(response)
        self._num_answers += 1
        try:
            return parse_completion(query, response.json()["choices"][0]), None
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
            return Answer(failure="malformed"), None

    def _read_failure(self, response: httpx.Response) -> tuple[Answer, float | None]:
        """Return the failure that a status stands for; `UserError` if no request can be answered."""
        status, reason = response.status_code, read_reason(response)
        if status in OVERLOADED_STATUSES:
            return Answer(failure="overloaded"), parse_retry_after(response.headers.get("Retry-After"))
        if status == TIMEOUT_STATUS:
            return Answer(failure="timeout"), None
        if status >= 500:
            return Answer(failure="server error"), None
        is_moderated = status == FORBIDDEN_STATUS and (self._num_answers or MODERATION_PATTERN.search(reason))
        is_rejected = status in REJECTED_STATUSES or is_moderated
        self._num_rejections += bool(is_rejected)
        if is_rejected and (self._num_answers or self._num_rejections < MAX_FIRST_REJECTIONS):
            return Answer(failure="rejected"), None
        raise UserError(f"{self.config.url} rejected the request ({status}): {reason[:300]}")


def read_reason(response: httpx.Response) -> str:
    """Return the start of a refusal as text. A stated charset is not used: it may name any codec of Python."""
    return response.content[:MAX_REASON_BYTES].decode("utf-8", "replace")


def parse_completion(query: Query, choice: dict[str, Any]) -> Answer:
    """Return the answer in one choice of a chat completion.

    Raises:
        ValueError, LookupError, TypeError, AttributeError, OverflowError: If the choice is malformed.
    """
    reason = choice.get("finish_reason")
    if reason == MODERATED_REASON or choice["message"].get("refusal"):
        return Answer(failure="rejected")
    if not query.choices:
        return Answer(text=read_text_content(choice["message"]["content"], is_cut=reason == "length"))
    token = first_answer_token(choice["logprobs"]["content"])
    if token is None:
        return Answer(failure="unlisted")
    token_logprobs = [(fold_choice(str(top["token"])), float(top["logprob"])) for top in token["top_logprobs"]]
    if not all(value <= MAX_ROUNDED_LOGPROB for _, value in token_logprobs):
        raise ValueError("a log-probability above 0, or none")
    # " yes" and "Yes" are two tokens of one answer.
    probabilities = {
        option: sum(math.exp(value) for token, value in token_logprobs if token == fold_choice(option))
        for option in query.choices
    }
    listed = [math.exp(value) for _, value in token_logprobs]
    largest_unlisted = min([*listed, 1.0 - sum(listed) + MAX_ROUNDED_LOGPROB])
    known = sum(probabilities.values())
    if not known or (not all(probabilities.values()) and largest_unlisted > MAX_UNLISTED_SHARE * known):
        return Answer(failure="unlisted")
    return Answer(logprobs={option: math.log(p) if p else -math.inf for option, p in probabilities.items()})


def read_text_content(content: Any, *, is_cut: bool) -> str:
    """Return the text of a message, which may have several parts; `TypeError` if it has none."""
    if isinstance(content, list):
        content = "".join(str(part["text"]) for part in content if part.get("type") == "text")
    if content is None and is_cut:  # all tokens went into reasoning
        return ""
    if not isinstance(content, str):
        raise TypeError(f"content is {type(content).__name__}")
    return content


def first_answer_token(tokens: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first token after the reasoning that is no white space; None if the text ends within the reasoning."""
    texts = [str(token.get("token", "")) for token in tokens]
    start = conclusion_start("".join(texts))
    if start is None:
        return None
    ends = itertools.accumulate(map(len, texts))
    after = [index for index, (text, end) in enumerate(zip(texts, ends, strict=True)) if end - len(text) >= start]
    spoken = [index for index in after if texts[index].strip()]
    return tokens[(spoken or after)[0]] if after else None
