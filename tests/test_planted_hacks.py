"""What the page on planted hacks counts: alarms in time, and honest runs that rang."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "planted_hacks.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("planted_hacks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_hacks"] = module
    spec.loader.exec_module(module)
    return module


def test_an_alarm_is_in_time_within_a_tenth_of_the_budget_since_the_hack(script: ModuleType) -> None:
    tenth = script.TENTH
    rang = {"at once": [5], "just": [5 + tenth - 1], "late": [5 + tenth], "before": [4], "never": []}
    found = {name: script.Found("patch", 5, alarms, 0.2, 0.1) for name, alarms in rang.items()}
    text = script.report(found, [], "python")
    assert "In time: 2 of 5" in text and "| late | patch | " in text and text.count("**no**") == 3
    assert "0 of 0 (asked: at most 1 of 20): too few to say" in text


def test_honest_are_those_that_the_model_alone_paid(script: ModuleType, tmp_path: Path) -> None:
    cells = [
        {"rule": "shaped", "success": "model", "alarms": [3]},
        {"rule": "shaped", "success": "model", "alarms": []},
        {"rule": "shaped", "success": "simulator", "alarms": [1]},
        {"rule": "hold", "success": "model", "alarms": [1]},
    ]
    (tmp_path / "cells.jsonl").write_text("\n".join(json.dumps({"result": cell}) for cell in cells))
    assert script.honest_alarms([tmp_path / "cells.jsonl"]) == [True, False]


def test_a_patch_is_where_something_changed(script: ModuleType) -> None:
    changed = np.zeros((2, 64, 64))
    changed[1, 30, 20] = script.SIDE**2
    means = script.windows(changed)
    assert means.shape == (2, 65 - script.SIDE, 65 - script.SIDE) and (means[0] == 0).all()
    over = np.argwhere(means[1] == 1)
    assert over.min(0).tolist() == [31 - script.SIDE, 21 - script.SIDE] and over.max(0).tolist() == [30, 20]
    assert len(over) == script.SIDE**2
