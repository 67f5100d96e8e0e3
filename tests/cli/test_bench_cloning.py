"""`embodied-rm bench cloning`: all methods on the same demonstrations, every cell once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from embodied_rm.cli.main import main
from embodied_rm.experiments.cloning_benchmark import (
    METHODS,
    PLAIN,
    REWARD_WEIGHTED,
    SUCCESSES_ONLY,
    TRANSLATION_INVARIANT,
    BenchCloningConfig,
    make_recipe,
)


def test_all_methods_share_recordings_and_one_uses_successes_only():
    plain, weighted, successes_only = (
        make_recipe(BenchCloningConfig(), 3, "lift_cube", method) for method in (PLAIN, REWARD_WEIGHTED, SUCCESSES_ONLY)
    )
    assert (
        plain.collect_config == weighted.collect_config == successes_only.collect_config
        and plain.collect_config.seed == 3
    )
    assert plain.collect_config.num_successes == plain.collect_config.num_failures == 10
    assert (
        plain.clone_config.include_failures
        and weighted.clone_config.include_failures
        and not successes_only.clone_config.include_failures
    )
    assert (
        weighted.clone_config.reward_weighted
        and not plain.clone_config.reward_weighted
        and not successes_only.clone_config.reward_weighted
    )
    assert (plain.clone_config.num_demonstrations, successes_only.clone_config.num_demonstrations) == (20, 10)
    invariant = make_recipe(BenchCloningConfig(), 3, "lift_cube", TRANSLATION_INVARIANT)
    assert invariant.collect_config == plain.collect_config
    assert invariant.clone_config == replace(successes_only.clone_config, translation_invariant=True)


@pytest.mark.usefixtures("few_steps")
def test_cells_run_once_and_fill_a_section_of_the_page(tmp_path: Path) -> None:
    small = [
        "tasks=[press_button]",
        "num_seeds=1",
        "num_demonstrations=2",
        "eval_episodes=4",
        f"results_page={tmp_path / 'page.md'}",
    ]
    assert main(["bench", "cloning", *small, f"out={tmp_path / 'run'}"]) == 0
    results = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["success"]["press_button"]
    assert results.keys() == set(METHODS) and all(len(rates) == 1 for rates in results.values())
    text = (tmp_path / "page.md").read_text()
    assert f"| `press_button` | {results[PLAIN][0]:.3f} ({results[PLAIN][0]:.3f}) |" in text
    assert main(["bench", "cloning", *small, f"out={tmp_path / 'again'}"]) == 0
    assert json.loads((tmp_path / "again" / "metrics.json").read_text())["bench"]["success"]["press_button"] == results
    assert not (tmp_path / "again" / "press_button").exists(), "all results are read from the results cache"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["num_demonstrations=5"], "must be even"),
        (["num_seeds=0"], "num_seeds must be >= 1"),
        (["tasks=[lift]"], "unknown task"),
    ],
)
def test_invalid_settings_fail_before_anything_runs(words, message, tmp_path, capsys):
    assert main(["bench", "cloning", *words, f"out={tmp_path / 'run'}"]) == 2
    assert message in " ".join(capsys.readouterr().err.split()) and not (tmp_path / "run").exists()
