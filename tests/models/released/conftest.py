"""Fixture of the six released models."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from released_layouts import LAYOUTS


@pytest.fixture(scope="session")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Path]]:
    """Return a function: name of a model -> its folders, which all processes of a test run share."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def write_or_reuse(name: str) -> dict[str, Path]:
        folder = root / "released" / name
        locations = folder.with_suffix(".json")
        folder.parent.mkdir(exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not locations.exists():
                locations.write_text(json.dumps({key: str(path) for key, path in LAYOUTS[name](folder).items()}))
        return {key: Path(path) for key, path in json.loads(locations.read_text()).items()}

    return write_or_reuse
