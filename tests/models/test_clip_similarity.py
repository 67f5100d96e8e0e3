"""`ClipSimilarity`: the cosine of open_clip, the published regularization and the contract of a reward model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_clip import save_tiny_clip

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.encoders import small_encoder_config
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.reward_model import RewardModel
from embodied_rm.types import Episode, Views

import open_clip  # isort: skip

SENTENCES = ["lift the red cube", "open the drawer", "lift the blue cube"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_tiny_clip(tmp_path_factory.mktemp("clip"))


def make(folder: Path, **options) -> ClipSimilarity:
    return ClipSimilarity(f"local-dir:{folder}", **options)


def make_clip(length: int = 4, *, n: int = 3, seed: int = 0) -> list[Views]:
    frames = np.random.default_rng(seed).integers(0, 256, (length, n, 2, 32, 32, 3), np.uint8)
    return [Views(names=("front", "wrist"), frames=timestep) for timestep in frames]


def play(model, video, sentences=SENTENCES) -> np.ndarray:
    state, values = model.reset(video[0], sentences), []
    for views in video[1:]:
        output, state = model.step(state, views)
        values.append(output.progress)
        np.testing.assert_array_equal(state.potential(), output.progress)
    return np.array(values)


def test_alpha_0_is_the_cosine_of_open_clip(folder):
    model, clip = make(folder, alpha=0.0), open_clip.create_model(f"local-dir:{folder}", weights_only=True).eval()
    images = make_clip(1)[0].frames[:, 0]
    mean, std = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1)
    with torch.no_grad():
        image_embedding = clip.encode_image(
            (torch.from_numpy(images).permute(0, 3, 1, 2) / 255 - mean) / std, normalize=True
        )
        text_embedding = clip.encode_text(open_clip.SimpleTokenizer(context_length=16)(SENTENCES), normalize=True)
    similarity = model.similarity(model.encode_image(images), model.encode_text(SENTENCES))
    torch.testing.assert_close(similarity, (image_embedding * text_embedding).sum(dim=1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_regularization_is_the_published_projection(folder, alpha):
    model = make(folder, alpha=alpha)
    x, goal, base = (
        model.encode_image(make_clip(1)[0].frames[:, 0]),
        model.encode_text(SENTENCES),
        model.encode_text(["a robot arm at a table"]),
    )
    for row in range(3):
        direction = (goal[row] - base[0]) / (goal[row] - base[0]).norm()
        matrix = alpha * torch.outer(direction, direction) + (1 - alpha) * torch.eye(24)
        expected = 1 - ((x[row] - goal[row]) @ matrix).square().sum() / 2
        assert float(model.similarity(x[row : row + 1], goal[row : row + 1])) == pytest.approx(
            float(expected), abs=1e-5
        )


def test_goal_equal_to_the_baseline_gives_the_plain_distance(folder):
    model = make(folder, baseline="open the drawer")
    goal, x = model.encode_text(["open the drawer"]), model.encode_image(make_clip(1, n=1)[0].frames[:, 0])
    assert float(model.similarity(x, goal)) == pytest.approx(1 - float((x - goal).square().sum()) / 8, abs=1e-5)


def test_reward_model_contract(folder):
    model = make(folder)
    assert isinstance(model, RewardModel)
    assert model.reset(make_clip()[0], SENTENCES).potential().tolist() == [0.0] * 3
    values = play(model, make_clip())
    assert values.dtype == np.float32 and ((values >= 0) & (values <= 1)).all() and np.ptp(values) > 0
    np.testing.assert_allclose(play(model, make_clip() + make_clip(2, seed=1))[:3], values, atol=1e-6)  # no future
    for row in range(3):
        single = play(model, [v.select(np.array([row])) for v in make_clip()], SENTENCES[row : row + 1])
        np.testing.assert_allclose(single[:, 0], values[:, row], atol=1e-6)


def test_take_and_put(folder):
    model, video = make(folder), make_clip(3)
    state = model.step(model.reset(video[0], SENTENCES), video[1])[1]
    swapped = state.put(np.array([0, 2]), state.take(np.array([2, 0])))
    expected = model.step(state, Views(names=video[2].names, frames=video[2].frames[[2, 1, 0]]))[0]
    np.testing.assert_allclose(model.step(swapped, video[2])[0].progress[[2, 1, 0]], expected.progress, atol=1e-6)
    assert swapped.potential()[0] == state.potential()[2]


def test_absent_views_are_ignored_and_the_last_value_is_carried(folder):
    model, (first, second) = make(folder), make_clip(2)
    state = model.step(model.reset(first, SENTENCES), first)[1]
    present = np.array([[True, False], [True, True], [False, False]])
    output, _ = model.step(state, Views(names=second.names, frames=second.frames, present=present))
    assert output.valid.tolist() == [True, True, False] and output.progress[2] == state.potential()[2]
    front = Views(names=("front",), frames=second.frames[:, :1])
    np.testing.assert_allclose(output.progress[0], model.step(state, front)[0].progress[0], atol=1e-6)
    both = [model.step(state, Views(names=(n,), frames=second.frames[:, [v]]))[0] for v, n in enumerate("ab")]
    np.testing.assert_allclose(output.progress[1], np.mean([one.progress[1] for one in both]), atol=1e-6)
    invisible = Views(names=second.names, frames=second.frames, present=np.zeros((3, 2), bool))
    assert not model.step(state, invisible)[0].valid.any()


def test_evaluate_reports_it_among_the_baselines(folder, tmp_path):
    progress = np.linspace(0, 1, 12, dtype=np.float32)
    with DatasetWriter(tmp_path / "data", robot_type="none") as writer:
        for seed in range(2):
            frames = np.random.default_rng(seed).integers(0, 256, (12, 32, 32, 3), np.uint8)
            fields = {"instruction": "lift the red cube", "fps": 10.0, "progress": progress, "success": True}
            writer.add(Episode(name=f"e{seed}", views={"front": frames}, metadata={"task": "lift"}, **fields))
    net = ProgressNet(NetConfig(views=("front",), encoder=small_encoder_config("stride_tower_tiny", (32, 32))))
    save_progress_net(tmp_path / "net", net, {})
    args = ["evaluate", f"data={tmp_path / 'data'}", f"checkpoint={tmp_path / 'net'}", "report_episodes=1"]
    assert main([*args, f"clip_baseline=local-dir:{folder}", f"out={tmp_path / 'run'}"]) == 0
    row = json.loads((tmp_path / "run" / "metrics.json").read_text())["baselines"]["similarity"]
    assert {"voc", "voc_reversed", "mae_successes", "epic", "seconds_per_frame"} <= set(row)
    assert "subtask_accuracy" not in row and "segmentation_f1" not in row, "it predicts no subtasks"
    assert abs(row["voc"]) < 0.9, "noise has no order"
    args = ["bench", "fusion", f"data={tmp_path / 'data'}", f"checkpoint={tmp_path / 'net'}"]
    assert main([*args, f"clip_baseline=local-dir:{folder}", f"out={tmp_path / 'fusion'}"]) == 0
    metrics = json.loads((tmp_path / "fusion" / "metrics.json").read_text())["bench"]
    assert metrics["views"]["_similarity_"]["voc"] == pytest.approx(row["voc"])
    assert "voc" in metrics["fusions"]["_similarity_"]


def test_invalid_lengths_and_folders_raise(folder, tmp_path):
    model = make(folder)
    with pytest.raises(UserError, match="views of 3, 1 instructions"):
        model.reset(make_clip()[0], SENTENCES[:1])
    with pytest.raises(UserError, match="views of 1 environments, got 3"):
        model.step(model.reset(make_clip(1, n=1)[0], SENTENCES[:1]), make_clip()[0])
    with pytest.raises(CheckpointError, match="cannot be read"):
        make(tmp_path)
