"""`embodied-rm dpo` and `embodied-rm bench dpo`: a policy is improved in a world model of recordings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_runs import TINY, metrics

from embodied_rm.cli.main import main
from embodied_rm.errors import UserError
from embodied_rm.paths import POLICY_DIR
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode
from embodied_rm.rl.imagination.world_model_config import WorldModelConfig
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.tabletop.dpo_policy import open_world_model

DPO = ["dpo", "task=lift_cube", "world_model_steps=3", "steps=3", "eval_episodes=4", *TINY]


@pytest.fixture(scope="module")
def cloned(demos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cloned") / "run"
    args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=1", "steps=3", "eval_episodes=4"]
    assert main([*args, *TINY, f"out={folder}"]) == 0
    return folder


def test_a_policy_is_improved_and_a_resumed_run_gives_the_same(cloned: Path, demos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    args = [*DPO, f"policy={cloned}", f"data={demos}", "deviation_weight=0.3", f"out={run}"]
    assert main(args) == 0
    first, before = (load_policy(folder / POLICY_DIR).state_dict() for folder in (run, cloned))
    assert any(not torch.equal(value, before[name]) for name, value in first.items())
    result = metrics(run)
    assert result["dpo_success"]["episodes"] == 4 and result["dpo"]["pairs"] > 0
    assert result["world_model"]["observation_copied"] > 0
    (run / "metrics.json").unlink()
    assert main([*args, "resume=true"]) == 0
    again = load_policy(run / POLICY_DIR).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert metrics(run) == result


def test_policies_that_do_not_fit_are_refused(
    cloned: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [*DPO, f"data={demos}", f"policy={cloned}"]
    assert main([*args, "progress_weight=0", "deviation_weight=0", f"out={tmp_path / 'a'}"]) == 2
    assert "no chunk is better than another" in capsys.readouterr().err
    assert main([*args, "horizon=1000", f"out={tmp_path / 'b'}"]) == 2
    assert "has horizon=1000 transitions" in capsys.readouterr().err
    assert main([*args, "task=turn_lever", f"out={tmp_path / 'c'}"]) == 2
    assert "turn_lever" in capsys.readouterr().err


def test_a_resumed_run_does_not_mix_world_model_and_episodes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    episode = LatentEpisode(
        observation=torch.randn(8, 3),
        action=2 * torch.rand(8, 2) - 1,
        embedding=torch.randn(8, 4),
        progress=torch.rand(8),
        is_demonstration=True,
    )
    config, run = WorldModelConfig(horizon=2, world_model_steps=1), RunFolder.open(tmp_path / "run")
    first = open_world_model([episode], config, 0, run, NullReporter())
    again = open_world_model([episode], config, 0, run, NullReporter())
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in first.state_dict().items())
    other = replace(episode, progress=episode.progress / 2)  # as another reward model predicts
    with pytest.raises(UserError, match="was started with other episodes, or another policy, reward model"):
        open_world_model([other], config, 0, run, NullReporter())
    with pytest.raises(UserError, match="was started with world_model_steps=1"):
        open_world_model([episode], replace(config, world_model_steps=2), 0, run, NullReporter())


@pytest.mark.usefixtures("few_steps")
def test_benchmark_measures_a_cell_once_and_fills_the_page(tmp_path: Path) -> None:
    page = tmp_path / "dpo.md"
    small = ["bench", "dpo", "tasks=[press_button]", "num_seeds=1", "num_demonstrations=2", "num_rollouts=2"]
    args = [*small, "world_model_steps=2", "eval_episodes=2", f"results_page={page}"]
    assert main([*args, f"out={tmp_path / 'run'}"]) == 0
    (cell,) = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["results"]["press_button"]
    assert -1 <= cell["kendall"] <= 1 and f" {cell['both']:.3f} |" in page.read_text()
    assert main([*args, f"out={tmp_path / 'again'}"]) == 0
    assert not (tmp_path / "again" / "press_button").exists(), "all results are read from the results cache"
    assert main([*args, "methods=[deviation]", f"out={tmp_path / 'one'}"]) == 0
    table = page.read_text()
    assert "`deviation`" in table and "`progress`" not in table, "only the chosen methods are measured and listed"
