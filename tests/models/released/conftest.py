"""The six released models, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from released_layouts import LAYOUTS


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Path]]:
    """Name of a model -> where its files are."""
    made: dict[str, dict[str, Path]] = {}

    def find(name: str) -> dict[str, Path]:
        if name not in made:
            made[name] = LAYOUTS[name](tmp_path_factory.mktemp("released") / name)
        return made[name]

    return find
