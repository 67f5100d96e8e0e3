"""Fixture of the six released models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from released_layouts import LAYOUTS


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Path]]:
    """Return a function: name of a model -> its folders."""
    folders: dict[str, dict[str, Path]] = {}

    def write_or_reuse(name: str) -> dict[str, Path]:
        if name not in folders:
            folders[name] = LAYOUTS[name](tmp_path_factory.mktemp("released") / name)
        return folders[name]

    return write_or_reuse
