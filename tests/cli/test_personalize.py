"""`embodied-rm personalize`: two tables of `prefer` become one reward with users."""

import json
from pathlib import Path

import pytest

from embodied_rm.cli.main import main
from embodied_rm.training.user_preferences.user_reward_net import load_user_reward


def test_two_users_of_prefer(demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = [tmp_path / "fast", tmp_path / "gentle"]
    for table, factor in zip(tables, ("duration", "effort"), strict=True):
        words = ["clip_share=1", f"factors=[{factor}]", "num_pairs=300", f"out={table}"]
        assert main(["prefer", f"data={demos}", *words]) == 0
    words = [f"data={demos}", f"comparisons=[{tables[0]},{tables[1]}]", "steps=20", "num_answers=2"]
    assert main(["personalize", *words, "held_out_share=0.5", f"out={tmp_path}/run"]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["personalize"]
    assert set(metrics) == {"fast", "gentle"}
    assert all(0 <= user["2 random answers, accuracy"] <= 1 for user in metrics.values())
    assert load_user_reward(tmp_path / "run" / "checkpoint").latent_dim == 4
    learn = ["offline", "task=lift_cube", f"data={demos}", "steps=10", "eval_episodes=1", f"user_answers={tables[0]}"]
    learn += ["rule=raw", f"out={tmp_path}/offline"]
    capsys.readouterr()
    assert main(learn) == 2
    assert "set checkpoint= to a run of embodied-rm personalize" in " ".join(capsys.readouterr().err.split())
    assert main([*learn, f"checkpoint={tmp_path}/run"]) == 0
    capsys.readouterr()
    assert main(["personalize", f"data={demos}", f"comparisons=[{tables[0]}]"]) == 2
    assert "comparisons must be tables of two or more users" in capsys.readouterr().err
