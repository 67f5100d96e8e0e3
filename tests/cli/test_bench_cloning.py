"""`embodied-rm bench cloning`: the same demonstrations in three ways, every cell once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from embodied_rm.cli.main import main
from embodied_rm.experiments.cloning_benchmark import (
    PLAIN,
    REWARD_WEIGHTED,
    SUCCESSES_ONLY,
    BenchCloningConfig,
    make_recipe,
)


def test_every_way_gets_the_same_recordings_and_only_one_is_told_which_failed():
    plain, aligned, told = (
        make_recipe(BenchCloningConfig(), 3, "lift_cube", way) for way in (PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY)
    )
    assert plain.collect_config == aligned.collect_config == told.collect_config and plain.collect_config.seed == 3
    assert plain.collect_config.num_successes == plain.collect_config.num_failures == 10
    assert (
        plain.clone_config.include_failures
        and aligned.clone_config.include_failures
        and not told.clone_config.include_failures
    )
    assert (
        aligned.clone_config.reward_weighted
        and not plain.clone_config.reward_weighted
        and not told.clone_config.reward_weighted
    )
    assert (plain.clone_config.num_demonstrations, told.clone_config.num_demonstrations) == (20, 10)


def test_cells_are_done_once_and_told_as_a_section(tmp_path: Path) -> None:
    small = ["tasks=[press_button]", "num_seeds=1", "num_demonstrations=2", "eval_episodes=4", f"results_page={tmp_path / 'page.md'}"]
    assert main(["bench", "cloning", *small, f"out={tmp_path / 'run'}"]) == 0
    told = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["success"]["press_button"]
    assert told.keys() == {PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY} and all(len(rates) == 1 for rates in told.values())
    text = (tmp_path / "page.md").read_text()
    assert f"| `press_button` | {told[PLAIN][0]:.3f} ({told[PLAIN][0]:.3f}) |" in text
    assert main(["bench", "cloning", *small, f"out={tmp_path / 'again'}"]) == 0
    assert json.loads((tmp_path / "again" / "metrics.json").read_text())["bench"]["success"]["press_button"] == told
    assert not (tmp_path / "again" / "press_button").exists(), "all is read from beside the page"


@pytest.mark.parametrize(
    ("words", "said"),
    [(["num_demonstrations=5"], "must be even"), (["num_seeds=0"], "num_seeds must be >= 1"), (["tasks=[lift]"], "unknown task")],
)
def test_mistakes_are_told_before_anything_runs(words, said, tmp_path, capsys):
    assert main(["bench", "cloning", *words, f"out={tmp_path / 'run'}"]) == 2
    assert said in " ".join(capsys.readouterr().err.split()) and not (tmp_path / "run").exists()
