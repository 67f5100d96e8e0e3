"""A demonstration as the model, from the command line and from Python, on real and on painted videos."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from real_data import REAL_DATA
from tiny_clip import save_tiny_clip

import embodied_rm as erm
from embodied_rm.api.demonstration_reward_model import thinning_stride
from embodied_rm.cli.main import main
from embodied_rm.data.source import EpisodeMeta, resample_subtasks, stride_indices
from embodied_rm.data.video.files import write_video
from embodied_rm.score import TABLE_FILE
from embodied_rm.types import Subtask

VIDEOS = REAL_DATA / "bridge_rollouts" / "videos"
DEMONSTRATION, ROLLOUT = VIDEOS / "drawer_gcbc_success.mp4", VIDEOS / "drawer_ddpm_success.mp4"
SIDE, LENGTH = 96, 24


def push(start: int, end: int, size: tuple[int, int] = (SIDE, SIDE)) -> np.ndarray:
    """A red square that slides over a checkerboard from one column to another."""
    rows, columns = np.indices((SIDE, SIDE)) // 12
    table = np.where((rows + columns) % 2, 150, 180).astype(np.uint8)[..., None].repeat(3, axis=2)
    frames = np.repeat(table[None], LENGTH, axis=0)
    for t, x in enumerate(np.linspace(start, end, LENGTH).astype(int)):
        frames[t, 36:60, x : x + 24] = (200, 30, 30)
    return frames[:, : size[0], : size[1]]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sets of recordings: squares pushed to the right, one of them not far enough; and to the left."""
    root = tmp_path_factory.mktemp("lab")
    paths = {"right": {"a": (4, 68), "b": (6, 68), "short": (4, 24)}, "left": {"a": (68, 4), "b": (68, 6)}}
    paths["pair"] = {"a": (4, 68), "short": (4, 24)}
    for name, trials in paths.items():
        for trial, (start, end) in trials.items():
            folder = root / name / f"{name}_{trial}"
            folder.mkdir(parents=True)
            write_video(folder / "camera.mp4", push(start, end), 10.0)
            (folder / "task_instruction.json").write_text(json.dumps([f"push it {name}"]))
            (folder / "success.json").write_text(json.dumps({"success": trial != "short"}))
    return root


def test_a_video_is_scored_from_another_video(tmp_path):
    assert main(["score", str(ROLLOUT), f"demonstration={DEMONSTRATION}", f"out={tmp_path / 'run'}"]) == 0
    table = pq.read_table(tmp_path / "run" / TABLE_FILE).to_pydict()
    scored = next(np.array(values) for name, values in table.items() if name.startswith("progress"))
    model = erm.from_demonstration(DEMONSTRATION)
    frames = erm.open_dataset(ROLLOUT, instruction="open the drawer").episode(0, size=(224, 224)).views["video"]
    output = model.score(frames)
    np.testing.assert_allclose(scored, output.progress, atol=2e-3)
    assert output.done[-1] and not output.done[0]
    assert (tmp_path / "run" / "report.html").exists()


def test_five_lines_of_python(lab):
    model = erm.from_demonstration([lab / "right" / "right_a", lab / "right" / "right_b"])
    output = model.score(push(5, 68))
    assert output.progress[-1] - output.progress[0] > 0.8
    assert model.input_spec.image_size == (224, 224)


def test_several_demonstrations_are_named_by_their_indices(lab, tmp_path):
    arguments = ["score", f"data={lab / 'right'}", f"demonstration={lab / 'right'}", "plots=false", "videos=false"]
    assert main([*arguments, "demonstration_indices=[0,1]", f"out={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["score"]["episodes"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demonstration=missing.mp4"], "missing.mp4"),
        ([f"demonstration={DEMONSTRATION}", "encoder=efficientnet_lite9"], "efficientnet_lite9"),
        ([f"demonstration={DEMONSTRATION}", "precision=int4"], "unknown precision 'int4'"),
        (["precision=int8"], "precision needs demonstration= as the reward model"),
        ([f"demonstration={DEMONSTRATION}", "goal_images=[goal.png]"], "takes no goal image: leave out goal_images="),
        ([f"demonstration={DEMONSTRATION}", "checkpoint=real", "instruction=open it"], "takes no demonstration"),
        (["demonstration_indices=[1]"], "demonstration_indices needs demonstration="),
        ([f"demonstration={DEMONSTRATION}", "demonstration_indices=[3]"], "3"),
        ([f"demonstration={VIDEOS / 'drawer_act_fail.mp4'}", "encoder=timm:no_such_model"], "unknown timm model"),
    ],
)
def test_mistakes_are_one_sentence(words, message, tmp_path, capsys):
    assert main(["score", f"data={ROLLOUT}", *words, f"out={tmp_path / 'run'}"]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_real_sets_are_evaluated_beside_baselines(lab, tmp_path):
    page = tmp_path / "page.md"
    arguments = [
        f"data={lab}",
        "sets=[right,left]",
        "groups=[]",
        "zero_shot_sets=[left]",
        f"clip_baseline=local-dir:{save_tiny_clip(tmp_path)}",
        f"results_page={page}",
        f"out={tmp_path / 'run'}",
    ]
    assert main(["evaluate", "real", *arguments]) == 0
    sets = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["sets"]
    right = sets["right"]["demonstration in context"]
    assert right["order"] > 0.95 and right["reversed"] < -0.95
    assert right["success above failure"] == 1
    assert right["done: whole, success"] == 1
    for case in ("frozen start", "frozen middle", "reversed", "black", "another video", "whole, failure"):
        assert right[f"done: {case}"] == 0, case
    adapted = sets["right"]["adapted to the demonstration"]
    assert adapted["order"] > 0.95 and adapted["reversed"] < -0.95 and adapted["success above failure"] == 1
    assert sets["right"]["clock"]["reversed"] > 0.9  # a clock does not look
    assert "| right | demonstration in context |" in page.read_text()
    assert "| figure | left | left, CLIP |" in page.read_text()


def test_a_success_and_a_failure_are_enough(lab, tmp_path):
    arguments = [f"data={lab}", "sets=[pair]", "groups=[]", "zero_shot_sets=[]", f"out={tmp_path / 'run'}"]
    assert main(["evaluate", "real", *arguments]) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())["bench"]["sets"]["pair"]
    scores = metrics["demonstration in context"]
    assert scores["done: whole, failure"] == 0 and "order" not in scores


def test_a_short_subtask_keeps_a_frame_of_a_long_demonstration():
    subtasks = (Subtask(name="reach", start=0, end=14), Subtask(name="grasp", start=14, end=22))
    meta = EpisodeMeta(name="long", instruction="", length=3000, subtasks=subtasks)
    stride = thinning_stride(meta)
    assert stride == 8 < thinning_stride(replace(meta, subtasks=()))
    resample_subtasks(subtasks, stride_indices(3000, stride))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sets=[nowhere]"], "nowhere"),
        (["groups=[right]"], "a group is written <set>/<episode>+<episode>"),
        (["groups=[right/right_a+right_z]"], "there is no episode right_z"),
        (["zero_shot_sets=[nowhere]"], "there is no set nowhere"),
        (["checkpoint=nowhere"], "nowhere"),
    ],
)
def test_mistakes_in_sets_are_one_sentence(words, message, lab, tmp_path, capsys):
    arguments = [f"data={lab}", "sets=[right]", "groups=[]", *words, f"out={tmp_path / 'run'}"]
    assert main(["evaluate", "real", *arguments]) == 2
    assert message in capsys.readouterr().err
