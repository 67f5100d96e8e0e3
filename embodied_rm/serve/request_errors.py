"""Errors of the reward service: a documented status, and a message that says what to do."""

from __future__ import annotations

from enum import Enum
from typing import Any


class ErrorCode(Enum):
    """Error code -> HTTP status and name of the gRPC status."""

    BAD_REQUEST = (400, "INVALID_ARGUMENT")
    UNAUTHENTICATED = (401, "UNAUTHENTICATED")
    FORBIDDEN = (403, "PERMISSION_DENIED")
    MODEL_NOT_FOUND = (404, "NOT_FOUND")
    REQUEST_TIMEOUT = (408, "DEADLINE_EXCEEDED")
    OUT_OF_ORDER = (409, "FAILED_PRECONDITION")
    SESSION_NOT_FOUND = (410, "NOT_FOUND")
    PAYLOAD_TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    UNSUPPORTED_MEDIA_TYPE = (415, "INVALID_ARGUMENT")
    VALIDATION_ERROR = (422, "INVALID_ARGUMENT")
    TOO_MANY_REQUESTS = (429, "RESOURCE_EXHAUSTED")
    INTERNAL_ERROR = (500, "INTERNAL")
    NOT_READY = (503, "UNAVAILABLE")
    DEADLINE_EXCEEDED = (504, "DEADLINE_EXCEEDED")

    def __init__(self, http_status: int, grpc_status: str) -> None:
        self.http_status, self.grpc_status = http_status, grpc_status


class RequestError(Exception):
    """A request that is rejected or has failed."""

    def __init__(self, code: ErrorCode, message: str, retry_after_s: float | None = None) -> None:
        """`message`: may quote the request, and so is escaped for terminals and logs.

        `retry_after_s`: seconds after which a retry may succeed; None: a retry does not help.
        """
        message = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in message)
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s

    def without_traceback(self) -> RequestError:
        """Return itself without references to stack frames, which would keep the request's data alive until the next
        garbage collection."""
        self.__context__ = None
        return self.with_traceback(None)


def validation_error(field: str, got: Any, expected: str) -> RequestError:
    """Return the error for a field with an invalid value."""
    return RequestError(ErrorCode.VALIDATION_ERROR, f"{field}: got {got}, expected {expected}")


def overload_error(message: str) -> RequestError:
    """Return the error for a request that may succeed one second later."""
    return RequestError(ErrorCode.TOO_MANY_REQUESTS, message, retry_after_s=1.0)
