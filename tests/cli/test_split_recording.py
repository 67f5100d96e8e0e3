"""Recordings of a split store what was sampled; recordings that overlap with training data are rejected."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import RECORD_SPLIT

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.tabletop.splits import load_split, split_mismatch
from embodied_sim.holdout import color_object_pairs_of
from embodied_sim.registry import make_task

SEEN = load_split("seen")


def test_episodes_store_what_was_sampled(seen: Path) -> None:
    texts = [meta.metadata for meta in open_dataset(seen / "dataset").meta]
    assert {entry["split"] for entry in texts} == {"seen"} and {entry["seed"] for entry in texts} == {"0"}
    assert {entry["phrasing"] for entry in texts} <= {"-4", "-3", "-2"}
    assert len({entry["scene"] for entry in texts}) == len(texts)
    tasks = {make_task(name).name for name in SEEN.tasks}
    assert [split_mismatch(SEEN, tasks, entry) for entry in texts] == [None] * len(texts)
    for meta in open_dataset(seen / "dataset").meta:
        task, index = make_task(meta.metadata["task"]), int(meta.metadata["phrasing"])
        starts = (replace(SEEN.holdout, color="any").sample_layout(task, np.random.default_rng(i)) for i in range(2000))
        layout = next(
            layout_
            for layout_ in starts
            if set(color_object_pairs_of(task, layout_)) == set(meta.metadata["objects"].split(", "))
        )
        swapped = replace(layout, object_order=layout.object_order[::-1])
        assert meta.instruction in {
            task.instruction(layout_, index + len(task.templates)) for layout_ in (layout, swapped)
        }


def test_no_recorded_instruction_is_a_held_out_phrasing(seen: Path) -> None:
    for meta in open_dataset(seen / "dataset").meta:
        task = make_task(meta.metadata["task"])
        starts = [replace(SEEN.holdout, color="any").sample_layout(task, np.random.default_rng(i)) for i in range(200)]
        held_out = {task.instruction(start, -1) for start in starts}
        sentences = meta.metadata["paraphrases"].split(" | ")
        assert meta.instruction in sentences and len(sentences) == len(set(sentences)) >= 10
        assert held_out.isdisjoint([*sentences, *meta.metadata["opposites"].split(" | ")])


def test_time_reversal_adds_episodes_of_tasks_with_an_opposite(seen: Path, tmp_path: Path) -> None:
    texts = [meta.metadata for meta in open_dataset(seen / "dataset").meta]
    assert {entry["task"] for entry in texts if entry["opposites"]} == {"stack_cubes"}
    args = ["train", f"data={seen}", "steps=1", "batch_size=2", "image_size=[32,32]", f"out={tmp_path / 'both'}"]
    assert main([*args, "time_reversal=true"]) == 0
    trained = json.loads((tmp_path / "both" / "metrics.json").read_text())["train"]
    assert trained["episodes"] > len(texts)


def test_a_dataset_with_different_observation_sizes_has_no_state(seen: Path, tmp_path: Path) -> None:
    assert open_dataset(seen / "dataset").episode(0).state is not None, "both tasks have 22 state values"
    args = ["collect", "tasks=[press_button,turn_lever]", f"out={tmp_path / 'mixed'}", *RECORD_SPLIT]
    assert main(args) == 0
    episode = open_dataset(tmp_path / "mixed/dataset").episode(0)
    assert episode.state is None and episode.action is not None and episode.progress is not None


def test_the_dataset_names_the_recorded_robot(tmp_path: Path) -> None:
    args = ["collect", "split=unseen_arm", "tasks=[press_button]", f"out={tmp_path / 'arm'}"]
    assert main([*args, *RECORD_SPLIT]) == 0
    assert json.loads((tmp_path / "arm/dataset/meta/info.json").read_text())["robot_type"] == "six_axis"


def test_the_same_scene_in_training_and_held_out_data_is_rejected(
    seen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other noise gives other episodes with the same initial scenes."""
    args = [
        "collect",
        "split=seen",
        "tasks=[press_button,stack_cubes]",
        "action_noise=0.1",
        f"out={tmp_path / 'again'}",
    ]
    assert main([*args, *RECORD_SPLIT]) == 0
    assert main(["train", f"data={seen}", f"held_out={tmp_path / 'again'}", f"out={tmp_path / 'model'}"]) == 2
    assert "held out, but the same scene is trained on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["collect", "split=sen"], "unknown split 'sen'. Did you mean 'seen'?"),
        (["collect", "split=all"], "split=all has no tasks to record"),
        (["collect", "split=seen", "tasks=[close_drawer]"], "unknown task of split=seen 'close_drawer'"),
        (["collect", "split=seen", "env.robot=six_axis"], "env.robot is set by split=seen"),
        (["collect", "split=seen", "env.randomize.mass=0.1"], "env.randomize is set by split=seen"),
        (["collect", "split=seen", "split.holdout.num_templates=2"], "split=seen is fixed"),
        (["collect", "split.holdout.color=sen"], "unknown value of split.holdout.color 'sen'"),
        (["train", "split=unseen_task", "data={seen}"], "episode_000000: it was recorded with split=seen"),
        (["evaluate", "checkpoint={model}"], "evaluate needs either data=... (recorded episodes) or split=..."),
        (["evaluate", "checkpoint={model}", "data={seen}", "split=seen"], "evaluate needs either data=..."),
        (["evaluate", "checkpoint={model}", "split=seen", "record.seed=0"], "trained on split=seen (seed 0)"),
        (
            ["evaluate", "checkpoint={model}", "data={seen}", "one_shot.method=adapt"],
            "one_shot records a demonstration",
        ),
        (
            ["evaluate", "checkpoint={model}", "split=unseen_task", "one_shot.method=adpt"],
            "unknown value of one_shot.method 'adpt'",
        ),
        (
            ["evaluate", "checkpoint={model}", "split=unseen_task", "one_shot.method=in_context", "one_shot.seed=1000"],
            "one_shot.seed must differ from record.seed, both are 1000",
        ),
        (
            ["evaluate", "checkpoint={model}", "split=unseen_task", "one_shot.replay_data={seen}"],
            "needs one_shot.method=adapt",
        ),
        (["demo", "evaluate.data=null"], "evaluate.data must be a folder inside the run folder"),
    ],
)
def test_an_error_is_one_sentence_and_writes_nothing(
    args: list[str], sentence: str, seen: Path, seen_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [word.replace("{seen}", str(seen)).replace("{model}", str(seen_model)) for word in args]
    assert main([*filled, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
