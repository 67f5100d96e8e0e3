"""How far Meta-Environment's failures came is told on the scale of its successes."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

FILE = Path(__file__).resolve().parent.parent / "docs" / "examples" / "metaworld" / "dataset.py"


def loaded() -> ModuleType:
    """The example, which is no package."""
    spec = importlib.util.spec_from_file_location("metaworld_dataset", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


dataset = loaded()


def successes() -> tuple[np.ndarray, np.ndarray]:
    """Many that went the same way: first the hand's is gone, then the object's."""
    time = np.linspace(0, 1, 401, dtype=np.float32)
    return np.stack([np.clip(1 - 2 * time, 0, 1), np.clip(2 - 2 * time, 0, 1)], 1), time


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_failure_came_as_far_as_the_successes_that_were_as_near(first: float, second: float) -> None:
    known, progress = successes()
    at = np.array([np.interp([first, second], progress, known[:, column]) for column in (0, 1)], np.float32).T
    told = dataset.as_near(at, known, progress)
    np.testing.assert_allclose(told, np.minimum([first, second], dataset.MOST), atol=0.01)


def test_no_failure_came_all_the_way() -> None:
    known, progress = successes()
    assert dataset.as_near(np.zeros((1, 2), np.float32), known, progress).tolist() == [pytest.approx(dataset.MOST)]
