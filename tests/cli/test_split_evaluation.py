"""`embodied-rm evaluate` and `calibrate` on splits: each is recorded once, and training splits are rejected."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tiny_runs import metrics

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.tabletop.splits import load_split, unseen_splits

TINY_RECORD = ("record.num_successes=1", "record.num_failures=1", "record.env.num_envs=2", "record.env.image_size=32")


def test_evaluate_records_a_split_once_and_evaluates_every_task(seen_model: Path, tmp_path: Path) -> None:
    args = [
        "evaluate",
        "split=unseen_task",
        f"checkpoint={seen_model}",
        "model_name=mine",
        f"out={tmp_path / 'e'}",
        *TINY_RECORD,
    ]
    args += ["report_episodes=1", "record.frame_stride=6"]
    assert main(args) == 0
    results = metrics(tmp_path / "e")["splits"]["unseen_task"]
    assert set(results) == {"mine", "baselines", "episodes", "tasks"} and "voc" in results["baselines"]["time"]
    assert set(results["tasks"]) == set(load_split("unseen_task").tasks)
    assert sum(results["episodes"].values()) == 8
    table = next((tmp_path / "e/unseen_task/dataset/meta").glob("info.json"))
    before = table.stat().st_mtime_ns
    (tmp_path / "e/metrics.json").unlink()
    assert main([*args, "resume=true"]) == 0
    assert table.stat().st_mtime_ns == before
    again = metrics(tmp_path / "e")["splits"]["unseen_task"]
    for numbers in (results, again):
        for row in (numbers["mine"], *numbers["tasks"].values()):
            assert row.pop("seconds_per_frame") > 0, "the only value that may differ"
    assert again == results


@pytest.mark.parametrize(
    "args", [["in_context"], ["adapt", "one_shot.steps=2", "one_shot.replay_episodes=2", "{seen}"]]
)
def test_one_shot_evaluation_is_reported_next_to_zero_shot(
    args: list[str], seen_model: Path, seen: Path, tmp_path: Path
) -> None:
    line = [
        "evaluate",
        "split=unseen_task",
        f"checkpoint={seen_model}",
        f"out={tmp_path / 'e'}",
        *TINY_RECORD,
        "report_episodes=1",
    ]
    rest = [word.replace("{seen}", f"one_shot.replay_data={seen}") for word in args[1:]]
    assert main([*line, "record.frame_stride=6", f"one_shot.method={args[0]}", *rest]) == 0
    results = metrics(tmp_path / "e")["splits"]["unseen_task"]
    shot = results["one_shot"]
    assert shot["method"] == args[0] and set(shot["tasks"]) == set(results["tasks"])
    assert shot["reward_model"].keys() == results["reward_model"].keys()
    assert shot["reward_model"]["mae"] != results["reward_model"]["mae"]
    texts = [meta.metadata for meta in open_dataset(tmp_path / "e/unseen_task/demonstrations/dataset").meta]
    eval_args = [meta.metadata for meta in open_dataset(tmp_path / "e/unseen_task/dataset").meta]
    assert [entry["task"] for entry in texts] == list(results["tasks"])
    assert not {entry["scene"] for entry in texts} & {entry["scene"] for entry in eval_args}
    assert (tmp_path / "e/unseen_task/adapted/close_drawer/checkpoint").exists() == (args[0] == "adapt")


def test_split_all_evaluates_every_unseen_split(
    seen_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [
        "evaluate",
        "split=all",
        f"checkpoint={seen_model}",
        f"out={tmp_path / 'all'}",
        "report_episodes=1",
        *TINY_RECORD,
    ]
    assert main([*args, "record.num_failures=0", "record.frame_stride=8", "record.env.num_envs=1"]) == 0
    assert set(metrics(tmp_path / "all")["splits"]) == set(unseen_splits())
    rows = capsys.readouterr().out.split("\nsplits\n")[1].splitlines()
    assert "voc" in rows[0].split()
    assert {row.split()[0] for row in rows[1 : 1 + len(unseen_splits())]} == set(unseen_splits())


def test_training_scenes_are_found_in_other_splits(
    seen_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another split name with the same seed records the same scenes."""
    twin_args = [
        "split=seen",
        "split.name=twin",
        "split.tasks=[press_button,stack_cubes]",
        "record.seed=0",
        "report_episodes=1",
    ]
    assert main(["evaluate", f"checkpoint={seen_model}", *twin_args, *TINY_RECORD, f"out={tmp_path / 'twin'}"]) == 2
    assert "the model was trained on it" in " ".join(capsys.readouterr().err.split())


def test_a_model_is_calibrated_on_unseen_episodes(
    seen: Path, seen_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for args in (["calibrate", f"checkpoint={seen_model}"], ["evaluate", f"checkpoint={seen_model}"],
                  ["audit", f"checkpoint={seen_model}"], ["bench", "fusion", f"checkpoint={seen_model}"]):  # fmt: skip
        assert main([*args, f"data={seen}", f"out={tmp_path / args[0]}"]) == 2
        assert "the model was trained on split=seen (seed 0)" in " ".join(capsys.readouterr().err.split())
    fresh_args = [
        "collect",
        "split=seen",
        "tasks=[press_button,stack_cubes]",
        "seed=77",
        "frame_stride=2",
        "env.num_envs=2",
        "env.image_size=32",
    ]
    fresh_args += ["num_successes=4", "num_failures=4"]
    assert main([*fresh_args, f"out={tmp_path / 'fresh'}"]) == 0
    line = ["calibrate", f"data={tmp_path / 'fresh'}", f"checkpoint={seen_model}", f"out={tmp_path / 'calibrated'}"]
    assert main(line) == 0
    fitted = metrics(tmp_path / "calibrated")["calibrate"]
    scale = fitted["interval_scale"]
    before, after = (load_progress_net(folder / "checkpoint") for folder in (seen_model, tmp_path / "calibrated"))
    assert before.capabilities.interval_scale is None and after.capabilities.interval_scale == pytest.approx(scale)
    assert before.capabilities.success_threshold is None
    assert 0 < after.capabilities.success_threshold == fitted["success_threshold"] <= 1
    assert after.with_fusion("forward").capabilities.success_threshold is not None, "success depends on no fusion"
    assert all(torch.equal(after.state_dict()[name], weights) for name, weights in before.state_dict().items())
    assert after.with_fusion("forward").capabilities.interval_scale is None, "another fusion has other errors"
    eval_args = ["evaluate", f"data={tmp_path / 'fresh'}", f"checkpoint={tmp_path / 'calibrated'}", "report_episodes=1"]
    assert main([*eval_args, f"out={tmp_path / 'evaluated'}"]) == 0
    numbers = metrics(tmp_path / "evaluated")["reward_model"]
    assert 0.9 <= numbers["interval_coverage"] < 0.95 and 0 < numbers["ood_rate"] < 0.05
    scored = ["score", f"data={tmp_path / 'fresh'}", f"checkpoint={tmp_path / 'calibrated'}", "videos=false"]
    assert main([*scored, f"out={tmp_path / 'scored'}"]) == 0
    table = pq.read_table(tmp_path / "scored" / "progress.parquet").to_pydict()
    low, value, high = (np.array(table[name]) for name in ("low", "progress_dense", "high"))
    assert ((low <= value) & (value <= high)).all() and (low < high).any()
    sentences = np.array(table["ood"])
    assert np.isfinite(sentences).sum() == len(sentences) - 16, "the first frames of 16 episodes have no prediction"
    assert np.mean(sentences[np.isfinite(sentences)] > 1) == pytest.approx(numbers["ood_rate"], abs=2e-3)
