"""What the page on planted hacks counts: alarms in time, and honest runs that rang."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

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
    rang = {
        "at once": ("patch", [5], 5),
        "just": ("patch", [5 + tenth - 1], 5),
        "late": ("patch", [5 + tenth], 5),
        "before": ("patch", [4], 5),
        "never": ("patch", [], 5),
    }
    text = script.report(rang, [], "python")
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
