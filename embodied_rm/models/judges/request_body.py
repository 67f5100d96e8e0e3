"""Bodies of chat completion requests, in the parameters that an endpoint takes: learned from those that it rejects."""

import base64
import io
import re
import threading
from typing import Any

from PIL import Image

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import ContentPart, Query

MAX_TOP_LOGPROBS = 20  # number of log-probabilities requested: the maximum that servers return
RENAMED_PARAMETERS = {"max_tokens": "max_completion_tokens", "temperature": ""}
"""Parameter that reasoning models reject -> its new name; empty: it is left out."""
UNSUPPORTED_PATTERN = re.compile(
    "unsupported|not supported|not support|unknown|unrecognized|instead|deprecated|invalid|only|allowed", re.IGNORECASE
)
MAX_LOGPROBS_PATTERN = re.compile(
    r"top_logprobs\D*+(\d{1,9}+)\D*+$"
    r"|top_logprobs.{0,400}?(?:<=|at most|equal to|maximum of|between \d{1,9}+ and)\s*+(\d{1,9}+)"
    r"|logprobs of \d{1,9}+.{0,400}?max\D{0,40}+(\d{1,9}+)"  # vLLM
)
"""The largest number that an endpoint allows. Every part has a limit: the time of a search grows with their product."""


class RequestParameters:
    """Parameters of requests to one endpoint; threads may share it."""

    def __init__(self, reasoning_tokens: int = 0) -> None:
        """`reasoning_tokens`: tokens that a model may generate before its answer."""
        self._reasoning_tokens, self._rejected = reasoning_tokens, set[str]()
        self._max_top_logprobs = MAX_TOP_LOGPROBS
        self._lock = threading.Lock()

    def body(self, query: Query, messages: list[dict[str, Any]], model: str) -> dict[str, Any]:
        """Return the body of a request; `messages`: those of the query, see `build_messages`."""
        max_tokens = self._reasoning_tokens + (1 if query.choices else query.max_tokens)
        parameters: dict[str, Any] = {"max_tokens": max_tokens, "temperature": query.temperature}
        if query.choices:
            parameters |= {"logprobs": True, "top_logprobs": self._max_top_logprobs}
        names = {name: RENAMED_PARAMETERS[name] if name in self._rejected else name for name in parameters}
        accepted = {names[name]: value for name, value in parameters.items() if names[name]}
        return {"model": model, "messages": messages, **accepted}

    def learn(self, sent: dict[str, Any], message: str) -> bool:
        """Return whether a rejected request may pass in other parameters, which later requests have too.

        `message`: start of the response of status 400 to the body `sent`.
        """
        with self._lock:
            if "top_logprobs" in sent and (match := MAX_LOGPROBS_PATTERN.search(message)) is not None:
                self._max_top_logprobs = min(self._max_top_logprobs, int(match[match.lastindex or 1]))
                return 0 < self._max_top_logprobs < sent["top_logprobs"]
            named = [name for name in RENAMED_PARAMETERS if name in sent and re.search(rf"\b{name}\b", message)]
            if not named or UNSUPPORTED_PATTERN.search(message) is None:
                return False
            self._rejected.update(named)
            return True


def build_messages(query: Query) -> list[dict[str, Any]]:
    """Return the messages of a query, with its images as PNG."""
    system_messages = [{"role": "system", "content": query.system}] if query.system else []
    return [*system_messages, {"role": "user", "content": [content_part(part) for part in query.parts]}]


def content_part(part: ContentPart) -> dict[str, Any]:
    """Return a text or an image as part of a message; `UserError` for a video."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.ndim == 4:
        raise UserError("an endpoint takes images, not videos")
    png = io.BytesIO()
    Image.fromarray(part).save(png, "PNG", compress_level=1)
    content = base64.b64encode(png.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}}
