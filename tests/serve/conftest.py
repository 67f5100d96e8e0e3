"""A browser for the pages of services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browsers import started, watched
from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real one, without a window."""
    with started() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page, which must not complain of anything until the end."""
    with watched(browser) as shown:
        yield shown
