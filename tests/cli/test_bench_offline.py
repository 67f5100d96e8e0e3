"""`embodied-rm bench offline`: all methods learn from the same recordings, every cell once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.errors import UserError
from embodied_rm.experiments import offline_benchmark
from embodied_rm.experiments.inferred_actions import drop_actions
from embodied_rm.experiments.offline_benchmark import BenchOfflineConfig
from embodied_rm.types import Episode

SMALL = [
    "bench",
    "offline",
    "tasks=[press_button]",
    "num_seeds=1",
    "num_demonstrations=2",
    "num_rollouts=2",
    "num_pairs=30",
    "train_steps=1",
    "offline_steps=5",
    "eval_episodes=2",
]


@pytest.mark.usefixtures("few_steps")
def test_cells_run_once_and_fill_the_page(tmp_path: Path) -> None:
    methods = "methods=[bc,bc_successes_10,iql_sparse,iql_compared_20]"
    page = tmp_path / "offline.md"
    assert main([*SMALL, methods, f"results_page={page}", f"out={tmp_path / 'run'}"]) == 0
    rates = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["success"]["press_button"]
    assert list(rates) == ["bc", "bc_successes_10", "iql_sparse", "iql_compared_20"]
    text = page.read_text()
    assert f"| `iql_sparse` | {rates['iql_sparse'][0]:.3f} ({rates['iql_sparse'][0]:.3f}) |" in text
    lines = page.with_suffix(".jsonl").read_text().splitlines()
    assert [json.loads(line)["cell"] for line in lines] == [f"press_button/1/{method}" for method in rates]
    assert main([*SMALL, methods, f"results_page={page}", f"out={tmp_path / 'again'}"]) == 0
    assert not (tmp_path / "again" / "press_button").exists(), "all results are read from the results cache"


@pytest.mark.usefixtures("few_steps")
def test_a_model_of_comparisons_gets_no_progress_outcome_or_subtasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained: list[Episode] = []
    monkeypatch.setattr(offline_benchmark, "train", lambda episodes, *args: trained.extend(episodes))
    assert main([*SMALL, "methods=[iql_compared_0]", f"out={tmp_path / 'run'}"]) == 2, "no model is written"
    assert len(trained) == 4
    for episode in trained:
        assert episode.progress is None and episode.success is None and not episode.subtasks


def test_unknown_methods_and_odd_numbers_of_demonstrations_are_refused() -> None:
    with pytest.raises(UserError, match=r"methods must be among bc, .*got sac"):
        BenchOfflineConfig(methods=("sac",))
    with pytest.raises(UserError, match="num_demonstrations must be even and >= 2, got 3: half of them are failures"):
        BenchOfflineConfig(num_demonstrations=3)


def test_a_share_of_the_episodes_keeps_its_actions() -> None:
    actions = np.zeros((3, 2), np.float32)
    views = {"front": np.zeros((3, 8, 8, 3), np.uint8)}
    episodes = [Episode(name=str(i), instruction="", fps=20.0, views=views, action=actions) for i in range(40)]
    for share, expected in ((0.1, 4), (0.01, 2)):
        dropped = drop_actions(episodes, share, 0)
        assert sum(episode.action is not None for episode in dropped) == expected
        assert [episode.name for episode in dropped] == [episode.name for episode in episodes]
