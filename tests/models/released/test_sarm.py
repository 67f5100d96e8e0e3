"""SARM has the numbers of LeRobot's classes, in windows of past frames."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episode

from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.judges.factory import open_judge
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.released.sarm import SarmJudge
from embodied_rm.models.released.sarm_net import read_config
from embodied_rm.models.reward_model import InputSpec
from embodied_rm.models.scoring import score_episodes, views_at
from embodied_rm.types import Episode, Views

Layout = Callable[[str], dict[str, Path]]
GAP, NUM_STEPS = 3, 2
"""Frames between two frames of a window, and their number before the current one."""


@pytest.fixture(scope="module")
def judge(layout: Layout) -> SarmJudge:
    return SarmJudge(**layout("sarm"))


def test_the_progress_is_that_of_lerobot(judge: SarmJudge) -> None:
    """The numbers are those of `SARMRewardModel.calculate_rewards` of lerobot 0.6.1, on the same files."""
    images = torch.sin(0.3 * torch.arange(160, dtype=torch.float64)).float().view(2, 5, 16)
    text = torch.cos(0.2 * torch.arange(32, dtype=torch.float64)).float().view(2, 16)
    with torch.inference_mode():
        progress = judge.net(images, text)
    expected = [
        [0.75849801, 0.79145211, 0.85018909, 0.89720523, 0.45820946],
        [0.48670751, 0.14947703, 0.18214296, 0.39914918, 0.44719934],
    ]
    torch.testing.assert_close(progress, torch.tensor(expected), rtol=0, atol=1e-5)


def trial(number: int, length: int) -> Episode:
    """An episode of one camera, which the model was trained on."""
    whole = episode(number, length=length)
    return replace(whole, views={"front": whole.views["front"]})


def test_a_window_has_past_frames_and_repeats_the_current_one(judge: SarmJudge) -> None:
    clip = trial(0, 12)
    (output,) = score_episodes(judge, [clip])
    images, text = judge.encode_images(clip.views["front"]), judge.encode_text([clip.instruction])
    for t in range(1, 12):
        past = [max(0, t - GAP * step) for step in range(NUM_STEPS, 0, -1)]
        with torch.inference_mode():
            expected = judge.net(images[[*past, *[t] * (1 + NUM_STEPS)]][None], text)[0, NUM_STEPS]
        assert output.progress[t] == pytest.approx(float(expected), abs=1e-5)
    assert len(set(output.progress[1:].tolist())) > 8 and np.isnan(output.success[1:]).all()


def test_a_state_is_restored_from_its_tensors(judge: SarmJudge) -> None:
    clips = [trial(0, 6), trial(1, 6)]
    state = judge.reset(views_at(clips, 0), ["go", "open it"])
    for t in range(1, 4):
        _, state = judge.step(state, views_at(clips, t))
    restored = judge.reset(views_at(clips, 0), ["a", "b"]).from_state_dict(state.state_dict())
    swapped = state.take(np.array([1, 0])).put(np.array([0, 1]), state)
    for other in (restored, swapped):
        expected, actual = (judge.step(each, views_at(clips, 4))[0] for each in (state, other))
        assert actual.progress == pytest.approx(expected.progress, abs=1e-6)


def test_a_frame_without_the_camera_is_unscored_and_counts_as_the_one_before(judge: SarmJudge) -> None:
    frames = trial(0, 6).views["front"].copy()
    repeated, hidden = frames.copy(), frames.copy()
    repeated[3], hidden[3] = frames[2], 0
    clips = [replace(trial(0, 6), views={"front": each}) for each in (repeated, hidden)]
    expected, output = score_episodes(judge, clips)
    assert output.valid.tolist() == [True, True, True, False, True, True]
    assert output.progress[[1, 2, 4, 5]] == pytest.approx(expected.progress[[1, 2, 4, 5]], abs=1e-5)
    assert output.progress[3] == output.progress[2]


def test_an_episode_begins_when_the_camera_is_first_visible(judge: SarmJudge) -> None:
    frames = trial(0, 6).views["front"]
    late = np.concatenate([np.zeros_like(frames[:2]), frames[1:]])
    output = score_episodes(judge, [replace(trial(0, 7), views={"front": late})])[0]
    started = replace(trial(0, 6), views={"front": np.concatenate([frames[1:2], frames[1:]])})
    (expected,) = score_episodes(judge, [started])
    assert output.valid.tolist() == [True, False, *[True] * 5]
    assert output.progress[2:] == pytest.approx(expected.progress[1:], abs=1e-5)


@pytest.mark.parametrize(
    ("views", "names", "index"),
    [(None, ("wrist", "front"), 1), (None, ("side",), 0), (("wrist",), ("front", "wrist"), 1)],
)
def test_the_camera_is_that_of_the_settings_else_of_the_training_else_the_only_one(
    layout: Layout, views: tuple[str, ...] | None, names: tuple[str, ...], index: int
) -> None:
    frames = np.random.default_rng(0).integers(0, 255, (1, len(names), 8, 8, 3), np.uint8)
    judge = SarmJudge(**layout("sarm"), input_spec=InputSpec(views=views))
    chosen, visible = judge.camera_frames(Views(names=names, frames=frames))
    assert np.array_equal(chosen, frames[:, index]) and visible.all()


def test_an_unknown_camera_is_refused(judge: SarmJudge) -> None:
    views = Views(names=("left", "right"), frames=np.zeros((1, 2, 8, 8, 3), np.uint8))
    with pytest.raises(UserError, match=r"set judge.views=\[...\] to one of left, right"):
        judge.reset(views, ["go"])


def test_it_needs_its_clip(layout: Layout) -> None:
    with pytest.raises(UserError, match=r"judge=sarm needs judge.base_model=\.\.\., the folder of openai/clip"):
        open_judge(JudgeConfig(type="sarm", folder=layout("sarm")["folder"]))


@pytest.mark.parametrize(
    ("settings", "bounds"),
    [
        ({}, [0, 0.2, 0.7, 1]),
        ({"sparse_temporal_proportions": None}, [0, 1 / 3, 2 / 3, 1]),
        ({"sparse_temporal_proportions": [1, 1, 2]}, [0, 0.25, 0.5, 1]),
        ({"annotation_mode": "single_stage"}, [0, 1]),
        ({"annotation_mode": "dense_only", "num_sparse_stages": 1}, [0, 1]),
    ],
)
def test_stages_have_their_shares_of_the_progress(
    layout: Layout, tmp_path: Path, settings: dict[str, object], bounds: list[float]
) -> None:
    config = json.loads((layout("sarm")["folder"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **settings}))
    assert read_config(tmp_path / "config.json").stage_bounds() == pytest.approx(bounds)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"type": "act"}, "its type is 'act', not 'sarm'"),
        ({"frame_gap": 0}, "n_obs_steps is 4 and frame_gap 0"),
        ({"hidden_dim": "wide"}, "not the configuration of a SARM"),
        ({"num_heads": 5}, "hidden_dim 24 is no multiple of num_heads 5"),
        ({"num_layers": 3}, "not the weights of this SARM"),
        ({"sparse_temporal_proportions": [1, 1]}, r"must be 3 numbers >= 0, got \[1, 1\]"),
        ({"image_dim": 8}, "not the weights of this SARM"),
    ],
)
def test_other_settings_are_refused(layout: Layout, tmp_path: Path, settings: dict[str, object], message: str) -> None:
    folders = layout("sarm")
    shutil.copytree(folders["folder"], tmp_path / "sarm")
    path = tmp_path / "sarm" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.raises(CheckpointError, match=message):
        SarmJudge(tmp_path / "sarm", folders["base_model"])
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="its type is None"):
        SarmJudge(tmp_path / "sarm", folders["base_model"])
