"""Fixtures: a browser, and a service with narrow limits for invalid requests."""

from collections.abc import Iterator

import pytest
from browsers import browser, page
from known_models import HashModel
from services import serving
from strict import SMALL_LIMITS, scores_valid_episode

from embodied_rm.serve.service_config import ServeConfig

__all__ = ["browser", "page", "strict", "url"]


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    """URL of a service with narrow limits."""
    with serving(HashModel(), config=ServeConfig(port=0, limits=SMALL_LIMITS)) as url:
        yield url


@pytest.fixture
def url(strict: str) -> Iterator[str]:
    """URL of that service, which must score a valid episode after every test."""
    yield strict
    assert scores_valid_episode(strict)
