"""What the service answers instead of a judgement: a documented status, and a sentence that says what to do."""

from __future__ import annotations

from enum import Enum


class Why(Enum):
    """Reason -> HTTP status and gRPC's name of it."""

    UNPARSABLE = (400, "INVALID_ARGUMENT")
    NO_KEY = (401, "UNAUTHENTICATED")
    FOREIGN = (403, "PERMISSION_DENIED")
    NO_SUCH_MODEL = (404, "NOT_FOUND")
    SLOW_BODY = (408, "DEADLINE_EXCEEDED")
    OUT_OF_STEP = (409, "FAILED_PRECONDITION")
    NO_SESSION = (410, "NOT_FOUND")
    TOO_LARGE = (413, "RESOURCE_EXHAUSTED")
    WRONG_TYPE = (415, "INVALID_ARGUMENT")
    DOES_NOT_FIT = (422, "INVALID_ARGUMENT")
    FULL = (429, "RESOURCE_EXHAUSTED")
    BROKEN = (500, "INTERNAL")
    NOT_READY = (503, "UNAVAILABLE")
    TOO_LATE = (504, "DEADLINE_EXCEEDED")

    @property
    def status(self) -> int:
        """Of HTTP."""
        return self.value[0]

    @property
    def grpc(self) -> str:
        """Name of gRPC's status."""
        return self.value[1]


class RefusalError(Exception):
    """A request that gets no judgement."""

    def __init__(self, why: Why, message: str, retry_after: float | None = None) -> None:
        """`retry_after`: seconds after which it may be tried again, where trying again helps."""
        super().__init__(message)
        self.why, self.message, self.retry_after = why, message, retry_after

    def bare(self) -> RefusalError:
        """Itself, holding on to nothing of where it was raised: else the frames of a request lie in memory until
        somebody looks for circles."""
        self.__context__ = None
        return self.with_traceback(None)
