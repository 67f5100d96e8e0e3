"""A reporter that ends a training as a power failure does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from embodied_rm.run_folder import NullReporter


class KilledError(Exception):
    """Stands for a power failure."""


class KillingReporter(NullReporter):
    """Raises `KilledError` after a percentage of the training."""

    def __init__(self, percent: int) -> None:
        self._percent = percent

    def track(self, items: Iterable, description: str, total: int | None = None) -> Iterator:
        for percent in items:
            yield percent
            if percent >= self._percent:
                raise KilledError
