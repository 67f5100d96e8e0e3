"""A model that is adapted to a real demonstration: its curves, and its checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from real_data import REAL_DATA

import embodied_rm as erm
from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.labels.true_progress import true_progress
from embodied_rm.metrics import voc
from embodied_rm.models.in_context.demonstration_checkpoint import load_demonstration_model
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.models.load_checkpoint import checkpoint_frame_stride
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.run_folder import NullReporter
from embodied_rm.training.in_context.adapt_demonstrations import adapt_demonstrations
from embodied_rm.types import Episode

VIEWS = ("cam_high",)  # one of three, for the time of the test
STRIDE = 12


def bimanual(number: int) -> Episode:
    source = open_dataset(REAL_DATA / "real_bimanual" / f"episode_00{number}")
    return source.episode(0, size=(224, 224), views=VIEWS, stride=STRIDE)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    args = [f"data={REAL_DATA / 'bridge_rollouts'}", "episode_indices=[0]", f"out={folder / 'run'}"]
    assert main(["adapt", "real", *args]) == 0
    return folder / "run"


def test_a_command_adapts_and_the_api_loads_it(adapted):
    metrics = json.loads((adapted / "metrics.json").read_text())["adapt"]
    assert metrics["keyframes"] > 10 and metrics["frame_weight"] > 0
    source = open_dataset(REAL_DATA / "bridge_rollouts")
    episode = source.episode(0, size=(224, 224), stride=3)
    model = erm.load_reward_model(adapted)
    (frames,) = episode.views.values()
    assert voc(model.score(frames).progress) > 0.95
    assert voc(model.score(np.ascontiguousarray(frames[::-1])).progress) < -0.6


def test_a_bare_video_needs_no_instruction(adapted, tmp_path):
    video = REAL_DATA / "bridge_rollouts" / "videos" / "drawer_ddpm_success.mp4"
    arguments = ["score", f"data={video}", f"checkpoint={adapted}", "plots=false", f"out={tmp_path / 'run'}"]
    assert main(arguments) == 0
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["score"]["episodes"] == 1


def test_recordings_are_read_at_the_rate_of_the_demonstration(adapted):
    """The rollout has 15 frames per second, as the demonstration; at twice its rate, every second frame is scored."""
    model = load_demonstration_model(adapted / "checkpoint")
    assert model.input_spec.frame_rate == open_dataset(REAL_DATA / "bridge_rollouts").fps
    folder = adapted / "checkpoint"
    assert [checkpoint_frame_stride(folder, fps) for fps in (5.0, 15.0, 30.0, 46.0)] == [1, 1, 2, 3]
    assert checkpoint_frame_stride(BUNDLED_CHECKPOINT, 30.0) == 1


def test_a_recording_at_twice_the_rate_is_evaluated_on_every_second_frame(adapted, tmp_path):
    """Metrics and report are those of the frames that the model reads, and of the last one."""
    episode = open_dataset(REAL_DATA / "bridge_rollouts").episode(0, size=(64, 64))
    with DatasetWriter(tmp_path / "fast") as writer:
        writer.add(replace(episode, fps=2 * episode.fps, progress=np.linspace(0, 1, len(episode), dtype=np.float32)))
    args = [f"data={tmp_path / 'fast'}", f"checkpoint={adapted}", f"out={tmp_path / 'run'}"]
    assert main(["evaluate", *args]) == 0
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["reward_model"]["mae"] < 0.2
    assert (tmp_path / "run/report.html").exists()


def test_an_altered_manifest_is_refused(adapted, tmp_path):
    manifest = json.loads((adapted / "checkpoint" / "manifest.json").read_text())
    manifest["demonstrations"][0]["frame_weight"] = 9.0
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"manifest\.json"):
        load_demonstration_model(tmp_path)


def test_adapting_is_repeatable_and_orders_another_episode():
    demonstration, other = bimanual(1), bimanual(2)
    encoder = open_frozen_encoder()
    first, second = (adapt_demonstrations([demonstration], encoder, NullReporter(), seed=3) for _ in range(2))
    progress = [score_episodes(model, [other])[0].progress for model in (first, second)]
    assert np.array_equal(*progress)
    assert voc(progress[0]) > 0.98
    plain = score_episodes(DemonstrationModel([demonstration], encoder), [other])[0].progress
    truth = true_progress(other)
    assert np.abs(progress[0] - truth).mean() < np.abs(plain - truth).mean() + 0.005


def test_wrong_demonstrations_are_refused_before_any_image_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, episode = open_frozen_encoder(), bimanual(1)
    monkeypatch.setattr(type(encoder), "encode", lambda *_: pytest.fail("an image was encoded"))
    with pytest.raises(UserError, match="a demonstration must succeed"):
        adapt_demonstrations([episode, replace(episode, success=False)], encoder, NullReporter())
    with pytest.raises(UserError, match="1 to 5 demonstrations can be aligned with, got 6"):
        adapt_demonstrations([episode] * 6, encoder, NullReporter())
