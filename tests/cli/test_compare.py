"""`embodied-rm compare`: paired cells, each done once, alone or in company."""

import json
import shutil
from pathlib import Path

import pytest

from embodied_rm.cli.main import main

SMALL = [
    "tasks=[press_button]", "seeds=2", "level=0.05", "collect.successes=3", "sizes.press_button.demonstrations=2",
    "sizes.press_button.iterations=3", "sizes.press_button.rollout_steps=6", "clone.steps=60", "clone.episodes=4",
    "refine.world.num_envs=4", "clone.world.num_envs=4", "refine.episodes=4", "refine.watched=4",
]  # fmt: skip


def compare(folder: Path, *words: str) -> dict:
    assert main(["compare", *SMALL, f"out={folder}", *words]) == 0
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("compare") / "both"
    return folder, compare(folder, "rules=[shaped,sparse]", f"page={folder.parent / 'page.md'}")


def test_cells_are_paired_and_told(both):
    folder, told = both
    cells = {(cell["seed"], cell["rule"]): cell for cell in told["cells"]}
    assert cells.keys() == {(seed, rule) for seed in range(2) for rule in ("shaped", "sparse")}
    for seed in range(2):
        assert cells[seed, "shaped"]["cloned"] == cells[seed, "sparse"]["cloned"]
        assert len(cells[seed, "shaped"]["curve"]) == 3
    assert told["rollouts"].keys() == {"shaped / sparse"}
    page = (folder.parent / "page.md").read_text()
    assert "| `press_button` | `sparse` |" in page and (folder.parent / "page_rules.png").stat().st_size > 5000
    assert (folder / "report.html").exists()


def test_a_cell_does_not_know_of_the_others(both, tmp_path):
    alone = compare(tmp_path / "alone", "rules=[sparse,raw]", "seeds=1")
    assert alone["rollouts"]["sparse / raw"]["p"] is None, "one pair says nothing"
    told = [cell for cell in both[1]["cells"] if (cell["seed"], cell["rule"]) == (0, "sparse")]
    assert [{**cell, "seconds": 0} for cell in alone["cells"][:1]] == [{**cell, "seconds": 0} for cell in told]


def test_what_is_finished_is_not_done_again(both):
    folder, told = both
    (folder / "metrics.json").unlink()
    before = (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns
    again = compare(folder, "rules=[shaped,sparse]", f"page={folder.parent / 'page.md'}", "resume=true")
    assert again == told and (folder / "press_button/0/sparse/metrics.json").stat().st_mtime_ns == before


def test_what_another_machine_has_measured_is_read_from_beside_the_page(both, tmp_path):
    folder, told = both
    shutil.copy(folder.parent / "page_rules.jsonl", tmp_path / "page_rules.jsonl")
    page = f"page={tmp_path / 'page.md'}"
    assert compare(tmp_path / "elsewhere", "rules=[shaped,sparse]", page) == told
    assert not (tmp_path / "elsewhere" / "press_button").exists(), "nothing is recorded, cloned or refined again"
    more = compare(tmp_path / "other", "rules=[sparse]", "seeds=1", "refine.watched=5", page)
    assert more["cells"][0]["curve"] != told["cells"][1]["curve"], "other settings are another cell"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rules=[shape]"], "Did you mean 'shaped'"),
        (["rules=[raw,raw]"], "each once"),
        (["tasks=[lift]"], "lift_cube"),
        (["refine.watched=0"], "refine.watched must be >= 1"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words, said, tmp_path, capsys):
    assert main(["compare", *words, f"out={tmp_path / 'run'}"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
