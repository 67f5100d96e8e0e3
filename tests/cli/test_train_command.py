"""`embodied-rm train` and `adapt`: interrupted, resumed, and started from a trained model."""

import signal
from pathlib import Path

import torch
from forked_program import ForkedProgram
from tiny_runs import metrics

from embodied_rm.cli.main import main
from embodied_rm.models.checkpoint import load_progress_net


def test_an_interrupt_is_one_line_and_the_run_can_resume(demos: Path, tmp_path: Path) -> None:
    args = [
        "train",
        f"data={demos}",
        "batch_size=2",
        "image_size=[32,32]",
        "checkpoint_seconds=0.01",
        f"out={tmp_path / 'r'}",
    ]
    program = ForkedProgram(args, tmp_path / "printed")
    program.wait_until((tmp_path / "r" / "unfinished" / "manifest.json").exists)
    program.send_signal(signal.SIGINT)
    assert program.wait() == 130
    assert program.errors == "interrupted; to resume, repeat the command line with resume=true\n"
    assert main([*args, "steps=5"]) == 2, "it must not be overwritten"
    assert main([*args, "steps=5", "resume=true"]) == 2, "nor continued with another config"
    assert not (tmp_path / "r" / "metrics.json").exists()


def test_adapt_starts_from_a_trained_model(demos: Path, reward_model: Path, tmp_path: Path) -> None:
    args = [
        "adapt",
        f"data={demos}",
        "episode_index=2",
        f"init_from={reward_model}",
        "max_seconds=null",
        "steps=2",
        "batch_size=2",
    ]
    assert main([*args, f"out={tmp_path / 'adapted'}"]) == 0
    before, after = (load_progress_net(folder / "checkpoint") for folder in (reward_model, tmp_path / "adapted"))
    assert before.config == after.config
    assert metrics(tmp_path / "adapted")["adapt"]["subtasks"] > 0


def test_train_starts_from_a_trained_model(demos: Path, reward_model: Path, tmp_path: Path) -> None:
    args = ["train", f"data={demos}", f"init_from={reward_model}", "steps=1", "batch_size=2", "learning_rate=1e-9"]
    assert main([*args, f"out={tmp_path / 'on'}"]) == 0
    before, after = (load_progress_net(folder / "checkpoint") for folder in (reward_model, tmp_path / "on"))
    assert before.config == after.config
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)
