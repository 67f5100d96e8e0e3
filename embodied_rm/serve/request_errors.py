"""Errors of the reward service: a documented status, and a message that says what to do."""

from __future__ import annotations

from enum import Enum


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

    @property
    def http_status(self) -> int:
        """HTTP status."""
        return self.value[0]

    @property
    def grpc_status(self) -> str:
        """Name of the gRPC status."""
        return self.value[1]


class RequestError(Exception):
    """A request that is rejected or has failed."""

    def __init__(self, code: ErrorCode, message: str, retry_after_s: float | None = None) -> None:
        """`retry_after_s`: seconds after which a retry may succeed; None: a retry does not help."""
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s

    def without_traceback(self) -> RequestError:
        """Return itself without references to stack frames, which would keep the request's data alive until the next
        garbage collection."""
        self.__context__ = None
        return self.with_traceback(None)
