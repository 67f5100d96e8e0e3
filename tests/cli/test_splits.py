"""Splits: each unseen one differs from what is trained on in one thing only, and leaks are refused in clear words."""

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
from embodied_sim.props.prop import PALETTE
from embodied_sim.registry import make_task, task_names
from embodied_sim.sim_errors import SimError

SEEN = load_split("seen")
DIFFERS = {
    "unseen_appearance": {"randomize.light_rotation", "randomize.brightness", "randomize.color", "randomize.min_appearance_fraction"},
    "unseen_arm": {"robot"},
    "unseen_camera": {"randomize.camera_shift", "randomize.camera_rotation", "randomize.min_camera_fraction"},
    "unseen_color": {"holdout.color", "tasks"},
    "unseen_phrasing": {"holdout.phrasing"},
    "unseen_task": {"tasks"},
}
TINY = ("num_successes=1", "num_failures=1", "env.num_envs=2", "env.image_size=32")
TINY_RECORD = ("record.num_successes=1", "record.num_failures=1", "record.env.num_envs=2", "record.env.image_size=32")


def flat(split: Split) -> dict[str, object]:
    """Every dotted key of a split but its name."""
    parts = {f.name: getattr(split, f.name) for f in fields(split) if f.name != "name"}
    inner = {name: parts.pop(name) for name in ("holdout", "randomize")}
    return parts | {f"{name}.{key}": value for name, part in inner.items() for key, value in vars(part).items()}


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


def test_every_unseen_split_differs_from_seen_in_one_attribute_only() -> None:
    assert set(unseen_splits()) == set(DIFFERS)
    for name, differing in DIFFERS.items():
        ours, theirs = flat(load_split(name)), flat(SEEN)
        assert {key for key in theirs if ours[key] != theirs[key]} == differing
        assert load_split(name).name == name


def test_what_is_unseen_was_never_trained_on() -> None:
    assert not set(load_split("unseen_task").tasks) & set(SEEN.tasks)
    assert set(load_split("unseen_task").tasks) | set(SEEN.tasks) == set(task_names())
    assert set(load_split("unseen_color").tasks) <= set(SEEN.tasks)
    camera, look, seen = (
        load_split("unseen_camera").randomize,
        load_split("unseen_appearance").randomize,
        SEEN.randomize,
    )
    for name in ("camera_shift", "camera_rotation"):
        assert getattr(camera, name) * camera.min_camera_fraction >= getattr(seen, name) > 0
    for name in ("light_rotation", "brightness", "color"):
        assert getattr(look, name) * look.min_appearance_fraction >= getattr(seen, name) > 0


def test_every_color_and_every_thing_is_known_from_other_pairs() -> None:
    """Only the pair is new: else a model would be asked for words and looks that it has never met."""
    held = [tuple(pair.split()) for pair in SEEN.holdout.color_object_pairs]
    things = {thing for _, thing in held}
    drawn = {prop.noun for name in SEEN.tasks for prop in make_task(name).object_props if prop.color is None}
    assert things == drawn, "every family of things has colors that are held out"
    for color in PALETTE:
        assert sum((color, thing) not in held for thing in things) >= 2, color
    for thing in things:
        assert sum((color, thing) not in held for color in PALETTE) >= 4, thing


@pytest.mark.parametrize("name", [name for name in group_choices("split") if name != "all"])
def test_every_task_of_every_split_has_starts_and_phrasings(name: str) -> None:
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
    words = ["train", f"data={seen}", "split=seen", "steps=2", "batch_size=2", "image_size=[32,32]"]
    assert main([*words, f"out={folder}"]) == 0
    return folder


def test_episodes_say_what_was_drawn_for_them(seen: Path) -> None:
    texts = [meta.metadata for meta in open_dataset(seen / "dataset").meta]
    assert {text["split"] for text in texts} == {"seen"} and {text["seed"] for text in texts} == {"0"}
    assert {text["phrasing"] for text in texts} <= {"-4", "-3", "-2"}
    assert len({text["scene"] for text in texts}) == len(texts)
    tasks = {make_task(name).name for name in SEEN.tasks}
    assert [split_mismatch(SEEN, tasks, text) for text in texts] == [None] * len(texts)
    for meta in open_dataset(seen / "dataset").meta:
        task, index = make_task(meta.metadata["task"]), int(meta.metadata["phrasing"])
        starts = (replace(SEEN.holdout, color="any").sample_layout(task, np.random.default_rng(i)) for i in range(2000))
        alike = next(
            at for at in starts if set(color_object_pairs_of(task, at)) == set(meta.metadata["objects"].split(", "))
        )
        swapped = replace(alike, object_order=alike.object_order[::-1])
        assert meta.instruction in {task.instruction(at, index + len(task.templates)) for at in (alike, swapped)}


def test_what_is_held_out_is_told_by_no_sentence_of_a_recording(seen: Path) -> None:
    for meta in open_dataset(seen / "dataset").meta:
        task = make_task(meta.metadata["task"])
        starts = [replace(SEEN.holdout, color="any").sample_layout(task, np.random.default_rng(i)) for i in range(200)]
        held_out = {task.instruction(start, -1) for start in starts}
        told = meta.metadata["paraphrases"].split(" | ")
        assert meta.instruction in told and len(told) == len(set(told)) >= 10
        assert held_out.isdisjoint([*told, *meta.metadata["opposites"].split(" | ")])


def test_videos_are_played_backwards_where_their_task_has_an_opposite(seen: Path, tmp_path: Path) -> None:
    texts = [meta.metadata for meta in open_dataset(seen / "dataset").meta]
    assert {text["task"] for text in texts if text["opposites"]} == {"stack_cubes"}
    words = ["train", f"data={seen}", "steps=1", "batch_size=2", "image_size=[32,32]", f"out={tmp_path / 'both'}"]
    assert main([*words, "time_reversal=true"]) == 0
    trained = json.loads((tmp_path / "both" / "metrics.json").read_text())["train"]
    assert trained["episodes"] > len(texts)


def test_a_dataset_of_tasks_whose_observations_differ_in_size_has_no_state(seen: Path, tmp_path: Path) -> None:
    assert open_dataset(seen / "dataset").episode(0).state is not None, "both tasks have 22 numbers"
    words = ["collect", "tasks=[press_button,turn_lever]", f"out={tmp_path / 'mixed'}", *TINY]
    assert main(words) == 0
    episode = open_dataset(tmp_path / "mixed/dataset").episode(0)
    assert episode.state is None and episode.action is not None and episode.progress is not None


def test_the_dataset_names_the_arm_that_was_recorded(tmp_path: Path) -> None:
    words = ["collect", "split=unseen_arm", "tasks=[press_button]", f"out={tmp_path / 'arm'}"]
    assert main([*words, *TINY]) == 0
    assert json.loads((tmp_path / "arm/dataset/meta/info.json").read_text())["robot_type"] == "six_axis"


def test_evaluate_records_a_split_once_and_judges_every_task(model: Path, tmp_path: Path) -> None:
    words = ["evaluate", "split=unseen_task", f"checkpoint={model}", "model_name=mine", f"out={tmp_path / 'e'}", *TINY_RECORD]
    words += ["report_episodes=1", "record.frame_stride=6"]
    assert main(words) == 0
    found = metrics(tmp_path / "e")["splits"]["unseen_task"]
    assert set(found) == {"mine", "baselines", "episodes", "tasks"} and "voc" in found["baselines"]["time"]
    assert set(found["tasks"]) == set(load_split("unseen_task").tasks)
    assert sum(found["episodes"].values()) == 8
    table = next((tmp_path / "e/unseen_task/dataset/meta").glob("info.json"))
    before = table.stat().st_mtime_ns
    (tmp_path / "e/metrics.json").unlink()
    assert main([*words, "resume=true"]) == 0
    assert table.stat().st_mtime_ns == before
    again = metrics(tmp_path / "e")["splits"]["unseen_task"]
    for numbers in (found, again):
        for row in (numbers["mine"], *numbers["tasks"].values()):
            assert row.pop("seconds_per_frame") > 0, "the only number that may differ"
    assert again == found


@pytest.mark.parametrize("words", [["in_context"], ["adapt", "one_shot.steps=2", "one_shot.replay_episodes=2", "{seen}"]])
def test_one_demonstration_of_each_task_is_used_and_measured_beside_zero_shot(
    words: list[str], model: Path, seen: Path, tmp_path: Path
) -> None:
    line = ["evaluate", "split=unseen_task", f"checkpoint={model}", f"out={tmp_path / 'e'}", *TINY_RECORD, "report_episodes=1"]
    rest = [word.replace("{seen}", f"one_shot.replay_data={seen}") for word in words[1:]]
    assert main([*line, "record.frame_stride=6", f"one_shot.method={words[0]}", *rest]) == 0
    found = metrics(tmp_path / "e")["splits"]["unseen_task"]
    shot = found["one_shot"]
    assert shot["method"] == words[0] and set(shot["tasks"]) == set(found["tasks"])
    assert shot["reward_model"].keys() == found["reward_model"].keys()
    assert shot["reward_model"]["mae"] != found["reward_model"]["mae"]
    texts = [meta.metadata for meta in open_dataset(tmp_path / "e/unseen_task/demonstrations/dataset").meta]
    judged = [meta.metadata for meta in open_dataset(tmp_path / "e/unseen_task/dataset").meta]
    assert [text["task"] for text in texts] == list(found["tasks"])
    assert not {text["scene"] for text in texts} & {text["scene"] for text in judged}
    assert (tmp_path / "e/unseen_task/adapted/close_drawer/checkpoint").exists() == (words[0] == "adapt")


def test_the_sentences_for_a_demonstration_are_all_that_its_split_has_for_its_goal() -> None:
    shown = Episode(
        name="one",
        views={"front": np.zeros((2, 8, 8, 3), np.uint8)},
        instruction="put the red cube into the drawer and close it",
        fps=10,
        metadata={"task": "cube_in_drawer", "goal": "put the red cube into the drawer and close it"},
    )
    own, foreign = goal_instructions(shown, SEEN.holdout)
    assert shown.instruction in own and len(own) == len(foreign) == 3
    assert all("red" in text and "blue" not in text for text in own)
    assert all("blue" in text and "red" not in text for text in foreign)


def test_split_all_is_every_unseen_split_in_one_table(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "split=all", f"checkpoint={model}", f"out={tmp_path / 'all'}", "report_episodes=1", *TINY_RECORD]
    assert main([*words, "record.num_failures=0", "record.frame_stride=8", "record.env.num_envs=1"]) == 0
    assert set(metrics(tmp_path / "all")["splits"]) == set(unseen_splits())
    rows = capsys.readouterr().out.split("\nsplits\n")[1].splitlines()
    assert "voc" in rows[0].split()
    assert {row.split()[0] for row in rows[1 : 1 + len(DIFFERS)]} == set(DIFFERS)


def test_the_same_scene_on_both_sides_is_refused(
    seen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other noise, so other episodes; but they begin in the same places."""
    words = ["collect", "split=seen", "tasks=[press_button,stack_cubes]", "action_noise=0.1", f"out={tmp_path / 'again'}"]
    assert main([*words, *TINY]) == 0
    assert main(["train", f"data={seen}", f"held_out={tmp_path / 'again'}", f"out={tmp_path / 'model'}"]) == 2
    assert "held out, but the same scene is trained on" in capsys.readouterr().err


DRAWN = {"split": "seen", "task": "stack_cubes", "objects": "red cube, blue cube", "side": "", "phrasing": "-2"}


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
def test_what_a_split_holds_out_is_found_in_training_data(change: dict[str, str], sentence: str | None) -> None:
    found = split_mismatch(SEEN, set(SEEN.tasks), DRAWN | change)
    assert found is None if sentence is None else found is not None and sentence in found


def test_data_that_does_not_say_what_it_shows_cannot_be_checked() -> None:
    found = split_mismatch(SEEN, set(SEEN.tasks), {"task": "stack_cubes"})
    assert found == "its metadata lack 'split': record it with embodied-rm collect split=seen"


def test_a_model_is_not_judged_by_what_it_was_trained_on() -> None:
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


def test_a_scene_that_a_model_was_trained_on_is_known_again_in_a_split(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under the name of another split, which would be recorded in the very same scenes."""
    twin = ["split=seen", "split.name=twin", "split.tasks=[press_button,stack_cubes]", "record.seed=0", "report_episodes=1"]
    assert main(["evaluate", f"checkpoint={model}", *twin, *TINY_RECORD, f"out={tmp_path / 'twin'}"]) == 2
    assert "the model was trained on it" in " ".join(capsys.readouterr().err.split())


def test_a_model_is_calibrated_on_what_it_was_not_trained_on(
    seen: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["calibrate", f"checkpoint={model}"], ["evaluate", f"checkpoint={model}"],
                  ["audit", f"checkpoint={model}"], ["bench", "fusion", f"checkpoint={model}"]):  # fmt: skip
        assert main([*words, f"data={seen}", f"out={tmp_path / words[0]}"]) == 2
        assert "the model was trained on split=seen (seed 0)" in " ".join(capsys.readouterr().err.split())
    fresh = ["collect", "split=seen", "tasks=[press_button,stack_cubes]", "seed=77", "frame_stride=2", *TINY[2:]]
    fresh += ["num_successes=4", "num_failures=4"]
    assert main([*fresh, f"out={tmp_path / 'fresh'}"]) == 0
    line = ["calibrate", f"data={tmp_path / 'fresh'}", f"checkpoint={model}", f"out={tmp_path / 'calibrated'}"]
    assert main(line) == 0
    scale = metrics(tmp_path / "calibrated")["calibrate"]["interval_scale"]
    before, after = (load_progress_net(folder / "checkpoint") for folder in (model, tmp_path / "calibrated"))
    assert before.capabilities.interval_scale is None and after.capabilities.interval_scale == pytest.approx(scale)
    assert all(torch.equal(after.state_dict()[name], weights) for name, weights in before.state_dict().items())
    assert after.with_fusion("forward").capabilities.interval_scale is None, "another fusion errs otherwise"
    judged = ["evaluate", f"data={tmp_path / 'fresh'}", f"checkpoint={tmp_path / 'calibrated'}", "report_episodes=1"]
    assert main([*judged, f"out={tmp_path / 'judged'}"]) == 0
    numbers = metrics(tmp_path / "judged")["reward_model"]
    assert 0.9 <= numbers["interval_coverage"] < 0.95 and 0 < numbers["ood_rate"] < 0.05
    scored = ["score", f"data={tmp_path / 'fresh'}", f"checkpoint={tmp_path / 'calibrated'}", "videos=false"]
    assert main([*scored, f"out={tmp_path / 'scored'}"]) == 0
    table = pq.read_table(tmp_path / "scored" / "progress.parquet").to_pydict()
    low, value, high = (np.array(table[name]) for name in ("low", "progress_dense", "high"))
    assert ((low <= value) & (value <= high)).all() and (low < high).any()
    told = np.array(table["ood"])
    assert np.isfinite(told).sum() == len(told) - 16, "nobody judges the first frames of 16 episodes"
    assert np.mean(told[np.isfinite(told)] > 1) == pytest.approx(numbers["ood_rate"], abs=2e-3)


def test_a_shipped_split_is_what_its_file_says_and_others_have_their_own_name() -> None:
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
    ("words", "sentence"),
    [
        (["collect", "split=sen"], "unknown split 'sen'. Did you mean 'seen'?"),
        (["collect", "split=all"], "split=all has no tasks to record"),
        (["collect", "split=seen", "tasks=[close_drawer]"], "unknown task of split=seen 'close_drawer'"),
        (["collect", "split=seen", "env.robot=six_axis"], "env.robot is set by split=seen"),
        (["collect", "split=seen", "env.randomize.mass=0.1"], "env.randomize is set by split=seen"),
        (["collect", "split=seen", "split.holdout.num_templates=2"], "split=seen is fixed"),
        (["collect", "split.holdout.color=sen"], "unknown value of split.holdout.color 'sen'"),
        (["train", "split=unseen_task", "data={seen}"], "episode_000000: it was recorded with split=seen"),
        (["evaluate", "checkpoint={model}"], "evaluate needs either data=..., recorded episodes, or split=..."),
        (["evaluate", "checkpoint={model}", "data={seen}", "split=seen"], "evaluate needs either data=..."),
        (["evaluate", "checkpoint={model}", "split=seen", "record.seed=0"], "trained on split=seen (seed 0)"),
        (["evaluate", "checkpoint={model}", "data={seen}", "one_shot.method=adapt"], "one_shot records a demonstration"),
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
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    words: list[str], sentence: str, seen: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [word.replace("{seen}", str(seen)).replace("{model}", str(model)) for word in words]
    assert main([*filled, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_demonstrations_metadata_names_no_file_to_run(tmp_path: Path) -> None:
    """One-shot adaptation looks up the task that a dataset names; a Python file of that name is not run."""
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'PWNED')!r}, 'w')\n")
    meta, views = {"task": str(tmp_path / "evil.py")}, {"front": np.zeros((2, 8, 8, 3), np.uint8)}
    episode = Episode(name="a", views=views, fps=10, instruction="lift it", subtasks=(), success=True, metadata=meta)
    with pytest.raises(SimError, match="unknown task"):
        goal_instructions(episode, Holdout())
    assert not (tmp_path / "PWNED").exists()
