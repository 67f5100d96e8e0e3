"""What the service answers instead of a prediction: a documented status, and a sentence that says what to do."""

from __future__ import annotations

from enum import Enum


class ErrorCode(Enum):
    """Reason -> HTTP status and gRPC's name of it."""

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
        """Of HTTP."""
        return self.value[0]

    @property
    def grpc_status(self) -> str:
        """Name of gRPC's status."""
        return self.value[1]


class RequestError(Exception):
    """A request that gets no prediction."""

    def __init__(self, code: ErrorCode, message: str, retry_after_s: float | None = None) -> None:
        """`retry_after`: seconds after which it may be tried again, where trying again helps."""
        super().__init__(message)
        self.code, self.message, self.retry_after_s = code, message, retry_after_s

    def without_traceback(self) -> RequestError:
        """Itself, holding on to nothing of where it was raised: else the frames of a request lie in memory until
        somebody looks for circles."""
        self.__context__ = None
        return self.with_traceback(None)
