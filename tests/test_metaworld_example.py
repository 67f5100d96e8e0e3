"""The Meta-World example estimates the progress of failures from successes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).resolve().parent.parent / "docs" / "examples" / "metaworld" / "convert.py"


def load_example() -> ModuleType:
    """Import the example, which is not in a package."""
    spec = importlib.util.spec_from_file_location("metaworld_convert", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


convert = load_example()


def make_known_frames() -> tuple[np.ndarray, np.ndarray]:
    """Return distances and progress of a success: first the hand's distance decreases, then the object's."""
    time = np.linspace(0, 1, 401, dtype=np.float32)
    return np.stack([np.clip(1 - 2 * time, 0, 1), np.clip(2 - 2 * time, 0, 1)], 1), time


@given(st.floats(0, 1), st.floats(0, 1))
def test_progress_of_failures_is_that_of_near_successful_frames(first: float, second: float) -> None:
    known, progress = make_known_frames()
    distances = np.array([np.interp([first, second], progress, known[:, column]) for column in (0, 1)], np.float32).T
    estimate = convert.estimate_progress(distances, known, progress)
    np.testing.assert_allclose(estimate, np.minimum([first, second], convert.MAX_FAILURE_PROGRESS), atol=0.01)


def test_progress_of_failures_is_bounded() -> None:
    known, progress = make_known_frames()
    estimate = convert.estimate_progress(np.zeros((1, 2), np.float32), known, progress)
    assert estimate.tolist() == [pytest.approx(convert.MAX_FAILURE_PROGRESS)]
