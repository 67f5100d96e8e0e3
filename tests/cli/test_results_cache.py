"""The results cache: read on other machines, measured again under other settings."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from child_process import start_process

from embodied_rm.cli.compose import compose_typed
from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.compare_rules import CompareConfig, make_recipe
from embodied_rm.experiments.recipe import record_threshold
from embodied_rm.experiments.results_cache import ResultsCache, begin_cell, code_digest, open_results_cache
from embodied_rm.models.checkpoint import model_digest
from embodied_rm.paths import resolve_reward_model

RESULTS_DIR = Path(__file__).parents[2] / "docs" / "results"
SETTINGS = {"updates": 3, "labels": ("hops",)}
WRITE_CELLS = """
import sys
from pathlib import Path
from embodied_rm.experiments.results_cache import ResultsCache
from embodied_rm.experiments.results_page import write_section
path, page, number = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
for count in range(40):
    ResultsCache(path).write(f"{number}/{count}", {"updates": 3, "labels": ("hops",)}, {"count": count}, "code")
    write_section(page, number, f"section {number} {count}")
"""


@pytest.fixture
def cache(tmp_path) -> ResultsCache:
    return open_results_cache(tmp_path / "results" / "page.md", "hard")


def test_results_are_read_as_written(cache):
    cache.write("lift/0", SETTINGS, {"success": 0.5, "curve": [0.1, None]})
    cache.write("lift/1", SETTINGS, {"success": 1.0})
    reopened = ResultsCache(cache.path)
    assert reopened.read("lift/0", SETTINGS) == {"success": 0.5, "curve": [0.1, None]}
    assert reopened.read("lift/1", SETTINGS) == {"success": 1.0}
    assert reopened.read("lift/2", SETTINGS) is None
    assert cache.path.name == "page_hard.jsonl"


def test_processes_that_write_at_once_lose_no_cell_and_no_section(cache):
    page = cache.path.parent / "page.md"
    with ExitStack() as stack:
        command = [sys.executable, "-c", WRITE_CELLS, str(cache.path), str(page)]
        processes = [stack.enter_context(start_process([*command, str(number)])) for number in range(4)]
        assert [process.wait() for process in processes] == [0, 0, 0, 0]
    expected = [(number, count) for number in range(4) for count in range(40)]
    assert all(cache.read(f"{number}/{count}", SETTINGS) == {"count": count} for number, count in expected)
    assert all(f"section {number} 39" in page.read_text() for number in range(4))
    assert {path.name for path in cache.path.parent.iterdir()} == {"page_hard.jsonl", "page.md"}


def test_other_settings_replace_the_cell(cache):
    cache.write("lift/0", SETTINGS, {"success": 0.5})
    other_settings = {**SETTINGS, "updates": 4}
    assert cache.read("lift/0", other_settings) is None
    cache.write("lift/0", other_settings, {"success": 0.75})
    assert cache.read("lift/0", other_settings) == {"success": 0.75} and cache.read("lift/0", SETTINGS) is None
    assert len(cache.path.read_text().splitlines()) == 1


def test_settings_are_compared_as_json(cache):
    cache.write("lift/0", SETTINGS, {"success": 0.5})
    assert cache.read("lift/0", json.loads(json.dumps(SETTINGS))) == {"success": 0.5}


def test_an_end_of_a_line_within_a_text_ends_no_cell(cache):
    cache.write("lift/0", SETTINGS, {"success": 0.5})
    cache.path.write_text(cache.path.read_text().replace('"success"', '"suc\u2028cess"'), encoding="utf-8")
    assert ResultsCache(cache.path).read("lift/0", SETTINGS) == {"suc\u2028cess": 0.5}


def test_a_cell_is_measured_once_and_rejects_the_folder_of_another(cache, tmp_path):
    folder, calls = tmp_path / "cell", []

    def measure() -> dict[str, float]:
        calls.append(1)
        return {"success": 0.5}

    for _ in range(2):
        assert cache.get_or_measure("lift/0", SETTINGS, folder, measure) == {"success": 0.5}
    assert len(calls) == 1
    other_settings = {**SETTINGS, "model": "another"}
    with pytest.raises(UserError, match="begun under other settings"):
        cache.get_or_measure("lift/0", other_settings, folder, measure)
    assert cache.get_or_measure("lift/0", other_settings, tmp_path / "fresh", measure) and len(calls) == 2


def test_a_cell_stores_the_code_version_that_began_it(cache, tmp_path, monkeypatch):
    begin_cell(tmp_path / "cell", SETTINGS)
    first_version = code_digest()
    monkeypatch.setattr("embodied_rm.experiments.results_cache.code_digest", lambda: "later")
    cache.get_or_measure("lift/0", SETTINGS, tmp_path / "cell", lambda: {"success": 0.5})
    assert json.loads(cache.path.read_text())["code"] == first_version
    cache.write("lift/1", SETTINGS, {"success": 0.5})
    assert cache.count_code_versions(["lift/0", "lift/1"]) == 2 and cache.count_code_versions(["lift/0"]) == 1


def test_a_missing_setting_equals_none(cache):
    """A new setting that is off by default does not invalidate stored results."""
    cache.write("lift/0", SETTINGS, {"success": 0.5})
    assert cache.read("lift/0", {**SETTINGS, "encoder": None, "more": {"deep": None}}) is None
    assert cache.read("lift/0", {**SETTINGS, "encoder": None}) == {"success": 0.5}


def test_without_a_page_nothing_is_stored(tmp_path):
    disabled = open_results_cache(None)
    disabled.write("lift/0", SETTINGS, {"success": 0.5})
    assert disabled.read("lift/0", SETTINGS) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["{", "[]", '{"cell": "lift/0"}', "1"])
def test_an_invalid_line_is_named(cache, line):
    cache.write("lift/0", SETTINGS, {"success": 0.5})
    cache.path.write_text(cache.path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"page_hard\.jsonl, line 2"):
        cache.read("lift/0", SETTINGS)


@pytest.mark.parametrize("rule", ["shaped", "sparse", "raw"])
def test_measured_days_stay_valid(rule):
    """A new setting whose default changes nothing keeps the cells of `make refinement`."""
    args = ["tasks=[lift_cube]", "refine.reward.success_source=simulator"]
    recipe = make_recipe(compose_typed("compare", args, CompareConfig), 0, "lift_cube", rule)
    _, settings = recipe.cache_settings(model_digest(resolve_reward_model(None)))
    assert ResultsCache(RESULTS_DIR / "refine_rules.jsonl").read(f"lift_cube/0/{rule}", settings) is not None


def test_a_threshold_of_the_user_is_another_cell():
    assert record_threshold(None) == 0.5 and record_threshold(0.7) == 0.7
    assert record_threshold(0.5) != record_threshold(None)
