"""What goes out: answers and refusals."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse, Response

from embodied_rm.serve.client.wire import BINARY, LENGTH, Message
from embodied_rm.serve.refusal import RefusalError, Why
from embodied_rm.serve.sessions import LostError


def message_response(message: Message) -> Response:
    """An answer of numbers; where they are all in the JSON, that is what it is."""
    text, blobs = message
    if not any(map(len, blobs)):
        return Response(text, media_type="application/json", headers={LENGTH: str(len(text))})
    return Response(b"".join([text, *blobs]), media_type=BINARY, headers={LENGTH: str(len(text))})


def refusal_response(refusal: RefusalError) -> Response:
    """A refusal: its status, and why in words."""
    told: dict[str, Any] = {"error": refusal.message, "code": refusal.why.name.lower()}
    headers = {}
    if isinstance(refusal, LostError):
        told["env"] = list(refusal.env)
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(math.ceil(refusal.retry_after))
    if refusal.why is Why.NO_KEY:
        headers["WWW-Authenticate"] = 'Basic realm="embodied-rm", charset="UTF-8"'
    if refusal.why in (Why.TOO_LARGE, Why.SLOW_BODY):
        headers["Connection"] = "close"  # what else would come is not read
    return JSONResponse(told, refusal.why.status, headers)
