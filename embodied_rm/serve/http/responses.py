"""HTTP responses and errors."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import JSONResponse, Response

from embodied_rm.client.wire import BINARY_CONTENT_TYPE, HEADER_LENGTH_HEADER, Message
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.sessions import SessionNotFoundError


def message_response(message: Message) -> Response:
    """Build the response from a message. Without binary data it is plain JSON."""
    header_json, blobs = message
    if not any(map(len, blobs)):
        return Response(
            header_json, media_type="application/json", headers={HEADER_LENGTH_HEADER: str(len(header_json))}
        )
    return Response(
        b"".join([header_json, *blobs]),
        media_type=BINARY_CONTENT_TYPE,
        headers={HEADER_LENGTH_HEADER: str(len(header_json))},
    )


def error_response(error: RequestError) -> Response:
    """Build the response for an error."""
    body: dict[str, Any] = {"error": error.message, "code": error.code.name.lower()}
    headers = {}
    if isinstance(error, SessionNotFoundError):
        body["env_ids"] = list(error.env_ids)
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(math.ceil(error.retry_after_s))
    if error.code is ErrorCode.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = 'Basic realm="embodied-rm", charset="UTF-8"'
    if error.code in (ErrorCode.PAYLOAD_TOO_LARGE, ErrorCode.REQUEST_TIMEOUT):
        headers["Connection"] = "close"  # the rest of the request is not read
    return JSONResponse(body, error.code.http_status, headers)
