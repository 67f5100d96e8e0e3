"""Splits: each unseen one differs from the training split in one attribute; overlaps are rejected."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from embodied_rm.cli.main import main
from embodied_rm.config_files import group_choices
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.experiments.one_shot import goal_instructions
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.tabletop.splits import (
    Split,
    check_split,
    check_split_unseen,
    load_split,
    split_mismatch,
    unseen_splits,
)
from embodied_rm.types import Episode
from embodied_sim.holdout import Holdout, color_object_pairs_of
from embodied_sim.palette import PALETTE
from embodied_sim.registry import make_task, task_names
from embodied_sim.sim_errors import SimError

SEEN = load_split("seen")
DIFFERS = {
    "unseen_appearance": {
        "randomize.light_rotation",
        "randomize.brightness",
        "randomize.color",
        "randomize.min_appearance_fraction",
    },
    "unseen_arm": {"robot"},
    "unseen_camera": {"randomize.camera_shift", "randomize.camera_rotation", "randomize.min_camera_fraction"},
    "unseen_color": {"holdout.color", "tasks"},
    "unseen_phrasing": {"holdout.phrasing"},
    "unseen_task": {"tasks"},
}
TINY = ("num_successes=1", "num_failures=1", "env.num_envs=2", "env.image_size=32")
TINY_RECORD = ("record.num_successes=1", "record.num_failures=1", "record.env.num_envs=2", "record.env.image_size=32")


def flat(split: Split) -> dict[str, object]:
    """Return all dotted keys of a split, except for its name."""
    parts = {f.name: getattr(split, f.name) for f in fields(split) if f.name != "name"}
    inner = {name: parts.pop(name) for name in ("holdout", "randomize")}
    return parts | {f"{name}.{key}": value for name, part in inner.items() for key, value in vars(part).items()}


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def test_every_unseen_split_differs_from_seen_in_one_attribute() -> None:
    assert set(unseen_splits()) == set(DIFFERS)
    for name, differing_keys in DIFFERS.items():
        split_values, seen_values = flat(load_split(name)), flat(SEEN)
        assert {key for key in seen_values if split_values[key] != seen_values[key]} == differing_keys
        assert load_split(name).name == name


def test_unseen_splits_do_not_overlap_with_training() -> None:
    assert not set(load_split("unseen_task").tasks) & set(SEEN.tasks)
    assert set(load_split("unseen_task").tasks) | set(SEEN.tasks) == set(task_names())
    assert set(load_split("unseen_color").tasks) <= set(SEEN.tasks)
    camera, appearance, seen = (
        load_split("unseen_camera").randomize,
        load_split("unseen_appearance").randomize,
        SEEN.randomize,
    )
    for name in ("camera_shift", "camera_rotation"):
        assert getattr(camera, name) * camera.min_camera_fraction >= getattr(seen, name) > 0
    for name in ("light_rotation", "brightness", "color"):
        assert getattr(appearance, name) * appearance.min_appearance_fraction >= getattr(seen, name) > 0


def test_every_color_and_object_is_trained_in_other_pairs() -> None:
    """Only the pair is new: every color and every object occurs in training."""
    held_pairs = [tuple(pair.split()) for pair in SEEN.holdout.color_object_pairs]
    object_kinds = {kind for _, kind in held_pairs}
    sampled_kinds = {prop.noun for name in SEEN.tasks for prop in make_task(name).object_props if prop.color is None}
    assert object_kinds == sampled_kinds, "every kind of object has held-out colors"
    for color in PALETTE:
        assert sum((color, kind) not in held_pairs for kind in object_kinds) >= 2, color
    for kind in object_kinds:
        assert sum((color, kind) not in held_pairs for color in PALETTE) >= 4, kind


@pytest.mark.parametrize("name", [name for name in group_choices("split") if name != "all"])
def test_every_task_of_every_split_has_layouts_and_phrasings(name: str) -> None:
    split, rng = load_split(name), np.random.default_rng(0)
    check_split(split)
    for task in map(make_task, split.tasks):
        split.holdout.sample_layout(task, rng)
        assert len(split.holdout.phrasing_indices(task)) == {"any": 4, "seen": 3, "unseen": 1}[split.holdout.phrasing]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("splits") / "seen"
    assert main(["collect", "split=seen", "tasks=[press_button,stack_cubes]", f"out={folder}", *TINY]) == 0
    return folder


@pytest.fixture(scope="module")
def model(seen: Path) -> Path:
    folder = seen.parent / "model"
    args = ["train", f"data={seen}", "split=seen", "steps=2", "batch_size=2", "image_size=[32,32]"]
    assert main([*args, f"out={folder}"]) == 0
    return folder


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
    args = ["collect", "tasks=[press_button,turn_lever]", f"out={tmp_path / 'mixed'}", *TINY]
    assert main(args) == 0
    episode = open_dataset(tmp_path / "mixed/dataset").episode(0)
    assert episode.state is None and episode.action is not None and episode.progress is not None


def test_the_dataset_names_the_recorded_robot(tmp_path: Path) -> None:
    args = ["collect", "split=unseen_arm", "tasks=[press_button]", f"out={tmp_path / 'arm'}"]
    assert main([*args, *TINY]) == 0
    assert json.loads((tmp_path / "arm/dataset/meta/info.json").read_text())["robot_type"] == "six_axis"


def test_evaluate_records_a_split_once_and_evaluates_every_task(model: Path, tmp_path: Path) -> None:
    args = [
        "evaluate",
        "split=unseen_task",
        f"checkpoint={model}",
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
    args: list[str], model: Path, seen: Path, tmp_path: Path
) -> None:
    line = [
        "evaluate",
        "split=unseen_task",
        f"checkpoint={model}",
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


def test_goal_instructions_are_all_phrasings_of_the_split() -> None:
    demonstration = Episode(
        name="one",
        views={"front": np.zeros((2, 8, 8, 3), np.uint8)},
        instruction="put the red cube into the drawer and close it",
        fps=10,
        metadata={"task": "cube_in_drawer", "goal": "put the red cube into the drawer and close it"},
    )
    own_goal_instructions, other_goal_instructions = goal_instructions(demonstration, SEEN.holdout)
    assert (
        demonstration.instruction in own_goal_instructions
        and len(own_goal_instructions) == len(other_goal_instructions) == 3
    )
    assert all("red" in entry and "blue" not in entry for entry in own_goal_instructions)
    assert all("blue" in entry and "red" not in entry for entry in other_goal_instructions)


def test_split_all_evaluates_every_unseen_split(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [
        "evaluate",
        "split=all",
        f"checkpoint={model}",
        f"out={tmp_path / 'all'}",
        "report_episodes=1",
        *TINY_RECORD,
    ]
    assert main([*args, "record.num_failures=0", "record.frame_stride=8", "record.env.num_envs=1"]) == 0
    assert set(metrics(tmp_path / "all")["splits"]) == set(unseen_splits())
    rows = capsys.readouterr().out.split("\nsplits\n")[1].splitlines()
    assert "voc" in rows[0].split()
    assert {row.split()[0] for row in rows[1 : 1 + len(DIFFERS)]} == set(DIFFERS)


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
    assert main([*args, *TINY]) == 0
    assert main(["train", f"data={seen}", f"held_out={tmp_path / 'again'}", f"out={tmp_path / 'model'}"]) == 2
    assert "held out, but the same scene is trained on" in capsys.readouterr().err


METADATA = {"split": "seen", "task": "stack_cubes", "objects": "red cube, blue cube", "side": "", "phrasing": "-2"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, None),
        ({"split": "unseen_camera"}, "recorded with split=unseen_camera, not with split=seen"),
        ({"task": "close_drawer"}, "the task close_drawer is none of split=seen"),
        ({"objects": "red cube, green cube"}, "split=seen holds out green cube"),
        ({"phrasing": "-1"}, "split=seen holds out phrasing -1"),
    ],
)
def test_held_out_episodes_in_training_data_are_found(change: dict[str, str], sentence: str | None) -> None:
    results = split_mismatch(SEEN, set(SEEN.tasks), METADATA | change)
    assert results is None if sentence is None else results is not None and sentence in results


def test_episodes_without_metadata_cannot_be_checked() -> None:
    results = split_mismatch(SEEN, set(SEEN.tasks), {"task": "stack_cubes"})
    assert results == "its metadata lack 'split': record it with embodied-rm collect split=seen"


def test_a_model_is_not_evaluated_on_its_training_splits() -> None:
    facts = {"splits": ["seen 0", "unseen_camera 7"]}
    check_split_unseen(facts, SEEN, 1000)
    check_split_unseen(facts, load_split("unseen_task"), 0)
    with pytest.raises(UserError, match=r"the model was trained on split=seen \(seed 0\)"):
        check_split_unseen(facts, SEEN, 0)
    with pytest.raises(UserError, match="trained on cube_in_drawer, which split=unseen_task requires to be unseen"):
        check_split_unseen({"tasks": ["cube_in_drawer", "lift_cube"]}, load_split("unseen_task"), 0)
    check_split_unseen({"tasks": ["cube_in_drawer", "lift_cube"]}, load_split("unseen_camera"), 0)
    with pytest.raises(UserError, match=r"the model was trained on split=unseen_camera \(seed 7\)"):
        check_split_unseen(facts, load_split("unseen_camera"), 1000)


def test_training_scenes_are_found_in_other_splits(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another split name with the same seed records the same scenes."""
    twin_args = [
        "split=seen",
        "split.name=twin",
        "split.tasks=[press_button,stack_cubes]",
        "record.seed=0",
        "report_episodes=1",
    ]
    assert main(["evaluate", f"checkpoint={model}", *twin_args, *TINY_RECORD, f"out={tmp_path / 'twin'}"]) == 2
    assert "the model was trained on it" in " ".join(capsys.readouterr().err.split())


def test_a_model_is_calibrated_on_unseen_episodes(
    seen: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for args in (["calibrate", f"checkpoint={model}"], ["evaluate", f"checkpoint={model}"],
                  ["audit", f"checkpoint={model}"], ["bench", "fusion", f"checkpoint={model}"]):  # fmt: skip
        assert main([*args, f"data={seen}", f"out={tmp_path / args[0]}"]) == 2
        assert "the model was trained on split=seen (seed 0)" in " ".join(capsys.readouterr().err.split())
    fresh_args = ["collect", "split=seen", "tasks=[press_button,stack_cubes]", "seed=77", "frame_stride=2", *TINY[2:]]
    fresh_args += ["num_successes=4", "num_failures=4"]
    assert main([*fresh_args, f"out={tmp_path / 'fresh'}"]) == 0
    line = ["calibrate", f"data={tmp_path / 'fresh'}", f"checkpoint={model}", f"out={tmp_path / 'calibrated'}"]
    assert main(line) == 0
    scale = metrics(tmp_path / "calibrated")["calibrate"]["interval_scale"]
    before, after = (load_progress_net(folder / "checkpoint") for folder in (model, tmp_path / "calibrated"))
    assert before.capabilities.interval_scale is None and after.capabilities.interval_scale == pytest.approx(scale)
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


def test_bundled_splits_are_fixed() -> None:
    changed = replace(SEEN, tasks=("lift_cube",))
    with pytest.raises(UserError, match="split=seen is fixed; give a changed split another name"):
        check_split(changed)
    check_split(replace(changed, name="mine"))
    with pytest.raises(UserError, match=r"unknown object of the held-out pair 'red cub': 'cub'\. Did you mean 'cube'"):
        check_split(replace(changed, name="mine", holdout=Holdout(color_object_pairs=("red cub",))))
    with pytest.raises(UserError, match="unknown held-out side 'push_to_zone up'"):
        check_split(replace(changed, name="mine", holdout=Holdout(sides=("push_to_zone up",))))
    with pytest.raises(SimError, match="unknown task 'lift'"):
        check_split(replace(changed, name="mine", tasks=("lift",)))


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
    args: list[str], sentence: str, seen: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [word.replace("{seen}", str(seen)).replace("{model}", str(model)) for word in args]
    assert main([*filled, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_metadata_of_a_demonstration_runs_no_file(tmp_path: Path) -> None:
    """One-shot adaptation looks up the task of a dataset by name; a Python file of that name is not run."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\n")
    meta, views = {"task": str(tmp_path / "evil.py")}, {"front": np.zeros((2, 8, 8, 3), np.uint8)}
    episode = Episode(name="a", views=views, fps=10, instruction="lift it", subtasks=(), success=True, metadata=meta)
    with pytest.raises(SimError, match="unknown task"):
        goal_instructions(episode, Holdout())
    assert not (tmp_path / "PWNED").exists()
