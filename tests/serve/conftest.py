"""A browser for the pages of services, and a service for those who send it what it does not want."""

from collections.abc import Iterator

import pytest
from browsers import browser, page
from known_models import HashModel
from services import serving
from strict import SMALL, judges_as_ever

from embodied_rm.serve.service_config import ServeConfig

__all__ = ["browser", "page", "strict", "url"]


@pytest.fixture(scope="module")
def strict() -> Iterator[str]:
    with serving(HashModel(), config=ServeConfig(port=0, limits=SMALL)) as url:
        yield url


@pytest.fixture
def url(strict: str) -> Iterator[str]:
    """Whatever is sent to it, a good episode is judged as ever afterwards."""
    yield strict
    assert judges_as_ever(strict)
