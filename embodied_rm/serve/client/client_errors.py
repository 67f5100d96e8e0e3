"""What can go wrong between an environment and its reward: told, and never replaced by a number."""

from __future__ import annotations

from collections.abc import Sequence


class ServiceError(Exception):
    """The service refuses a request for good: the message says why."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ServiceUnavailableError(ServiceError):
    """The service could not be reached, or would not take requests, for longer than the client is patient."""


class EpisodeLostError(ServiceError):
    """The service knows nothing of these environments' episodes: it was restarted, or they were idle for too long."""

    def __init__(self, message: str, env_ids: Sequence[int]) -> None:
        super().__init__(message, 410)
        self.env_ids = list(env_ids)


class OutOfOrderError(ServiceError):
    """The service is at another step of an episode."""
