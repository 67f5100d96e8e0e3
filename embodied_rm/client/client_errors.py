"""Errors of the reward client. A failure is never replaced by a number."""

from __future__ import annotations

from collections.abc import Sequence


class ServiceError(Exception):
    """The service rejects a request for good; the message has the reason."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class UnexpectedResponseError(ServiceError):
    """A response is none of a reward service; the message has the reason."""


class ServiceUnavailableError(ServiceError):
    """The service was unreachable, or accepted no requests, for longer than `retry_timeout_s`."""


class EpisodeLostError(ServiceError):
    """The service has no state of these environments' episodes: it was restarted, or they were idle for too long."""

    def __init__(self, message: str, env_ids: Sequence[int]) -> None:
        super().__init__(message, 410)
        self.env_ids = list(env_ids)


class OutOfOrderError(ServiceError):
    """The service is at another step of an episode."""
