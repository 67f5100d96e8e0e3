"""Fixture of the released models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from released_layouts import LAYOUTS
from shared_folders import build_once

LOCATIONS = "locations.json"


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Path]]:
    """Return a function: name of a model -> its folders, which all processes of a test run share."""

    def write_or_reuse(name: str) -> dict[str, Path]:
        folder = build_once(tmp_path_factory, f"released_{name}", lambda folder: write_layout(name, folder))
        return {key: folder / path for key, path in json.loads((folder / LOCATIONS).read_text()).items()}

    return write_or_reuse


def write_layout(name: str, folder: Path) -> None:
    """Write a model, and where its folders are."""
    locations = LAYOUTS[name](folder)
    (folder / LOCATIONS).write_text(json.dumps({key: str(path.relative_to(folder)) for key, path in locations.items()}))
