"""What one machine has measured, another reads; under other settings it is measured anew."""

import json

import pytest

from embodied_rm.cli.ledger import Ledger, ledger_of
from embodied_rm.errors import DataError

SETTINGS = {"updates": 3, "labels": ("hops",)}


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    return ledger_of(tmp_path / "results" / "page.md", "hard")


def test_a_cell_is_read_as_it_was_written_by_whoever_opens_the_file(ledger):
    ledger.write("lift/0", SETTINGS, {"success": 0.5, "curve": [0.1, None]})
    ledger.write("lift/1", SETTINGS, {"success": 1.0})
    again = Ledger(ledger.path)
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


def test_without_a_page_nothing_is_kept(tmp_path):
    nowhere = ledger_of(None)
    nowhere.write("lift/0", SETTINGS, {"success": 0.5})
    assert nowhere.read("lift/0", SETTINGS) is None and not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", ["{", "[]", '{"cell": "lift/0"}', "1"])
def test_a_damaged_line_is_named(ledger, line):
    ledger.write("lift/0", SETTINGS, {"success": 0.5})
    ledger.path.write_text(ledger.path.read_text() + line + "\n")
    with pytest.raises(DataError, match=r"page_hard\.jsonl, line 2"):
        ledger.read("lift/0", SETTINGS)
