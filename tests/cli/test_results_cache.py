"""What one machine has measured, another reads; under other settings it is measured anew."""

import json

import pytest

from embodied_rm.errors import DataError, UserError
from embodied_rm.experiments.results_cache import ResultsCache, begin_cell, code_digest, open_results_cache

SETTINGS = {"updates": 3, "labels": ("hops",)}


@pytest.fixture
def ledger(tmp_path) -> ResultsCache:
    return open_results_cache(tmp_path / "results" / "page.md", "hard")


def test_a_cell_is_read_as_it_was_written_by_whoever_opens_the_file(ledger):
    ledger.write("lift/0", SETTINGS, {"success": 0.5, "curve": [0.1, None]})
    ledger.write("lift/1", SETTINGS, {"success": 1.0})
    again = ResultsCache(ledger.path)
    assert again.read("lift/0", SETTINGS) == {"success": 0.5, "curve": [0.1, None]}
    assert again.read("lift/1", SETTINGS) == {"success": 1.0}
    assert again.read("lift/2", SETTINGS) is None
    assert ledger.path.name == "page_hard.jsonl"


def test_other_settings_are_another_cell_which_takes_its_place(ledger):
    ledger.write("lift/0", SETTINGS, {"success": 0.5})
    other = {**SETTINGS, "updates": 4}
    assert ledger.read("lift/0", other) is None
    ledger.write("lift/0", other, {"success": 0.75})
    assert ledger.read("lift/0", other) == {"success": 0.75} and ledger.read("lift/0", SETTINGS) is None
    assert len(ledger.path.read_text().splitlines()) == 1


def test_what_json_cannot_tell_apart_is_the_same_setting(ledger):
    ledger.write("lift/0", SETTINGS, {"success": 0.5})
    assert ledger.read("lift/0", json.loads(json.dumps(SETTINGS))) == {"success": 0.5}


def test_a_cell_is_measured_once_and_a_folder_of_another_is_refused(ledger, tmp_path):
    folder, calls = tmp_path / "cell", []

    def measure() -> dict[str, float]:
        calls.append(1)
        return {"success": 0.5}

    for _ in range(2):
        assert ledger.get_or_measure("lift/0", SETTINGS, folder, measure) == {"success": 0.5}
    assert len(calls) == 1
    other = {**SETTINGS, "model": "another"}
    with pytest.raises(UserError, match="begun under other settings"):
        ledger.get_or_measure("lift/0", other, folder, measure)
    assert ledger.get_or_measure("lift/0", other, tmp_path / "fresh", measure) and len(calls) == 2


def test_a_cell_is_filed_under_the_version_that_began_it(ledger, tmp_path, monkeypatch):
    begin_cell(tmp_path / "cell", SETTINGS)
    first = code_digest()
    monkeypatch.setattr("embodied_rm.experiments.results_cache.code_digest", lambda: "later")
    ledger.get_or_measure("lift/0", SETTINGS, tmp_path / "cell", lambda: {"success": 0.5})
    assert json.loads(ledger.path.read_text())["code"] == first
    ledger.write("lift/1", SETTINGS, {"success": 0.5})
    assert ledger.count_code_versions(["lift/0", "lift/1"]) == 2 and ledger.count_code_versions(["lift/0"]) == 1


def test_a_setting_that_is_not_there_is_none(ledger):
    """A new one, off by default, leaves what was measured before as it is."""
    ledger.write("lift/0", SETTINGS, {"success": 0.5})
    assert ledger.read("lift/0", {**SETTINGS, "tower": None, "more": {"deep": None}}) is None
    assert ledger.read("lift/0", {**SETTINGS, "tower": None}) == {"success": 0.5}


def test_without_a_page_nothing_is_kept(tmp_path):
    nowhere = open_results_cache(None)
    nowhere.write("lift/0", SETTINGS, {"success": 0.5})
    assert nowhere.read("lift/0", SETTINGS) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["{", "[]", '{"cell": "lift/0"}', "1"])
def test_a_damaged_line_is_named(ledger, line):
    ledger.write("lift/0", SETTINGS, {"success": 0.5})
    ledger.path.write_text(ledger.path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"page_hard\.jsonl, line 2"):
        ledger.read("lift/0", SETTINGS)
