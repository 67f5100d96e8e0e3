"""The bundled model of real robots on labs that it was never trained on, and the contract of every reward model."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from real_data import REAL_DATA, copy_droid

import embodied_rm as erm
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.lab_split import LabSplit
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.experiments.real_evaluation.pair_scores import predicts_done
from embodied_rm.experiments.real_evaluation.video_cases import (
    NEVER_DONE,
    REVERSED,
    order_of_last,
    reverse,
    try_again,
    undo,
)
from embodied_rm.metrics import voc
from embodied_rm.models.scoring import score_episodes, score_video
from embodied_rm.models.self_test import matches_expected, read_expected, run_self_test
from embodied_rm.models.zero_shot.zero_shot_checkpoint import load_zero_shot_model, save_zero_shot_model
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel, familiarity
from embodied_rm.paths import REAL_CHECKPOINT
from embodied_rm.types import Episode, Frames, RewardOutput, Views

MAX_BYTES = 20_000_000


@pytest.fixture(scope="module")
def model() -> ZeroShotModel:
    return load_zero_shot_model(REAL_CHECKPOINT)


@pytest.fixture(scope="module")
def episodes(model, tmp_path_factory: pytest.TempPathFactory) -> list[Episode]:
    """Episodes of the test labs."""
    source = open_dataset(copy_droid(tmp_path_factory.mktemp("droid") / "data", LabSplit().test, 6), None)
    return [source.episode(row, size=model.encoder.image_size, stride=4) for row in range(len(source))]


def frames_of(episode: Episode) -> Frames:
    return np.stack(list(episode.views.values()), axis=1)


def score(model: ZeroShotModel, frames: Frames, instruction: str) -> RewardOutput:
    names = tuple(f"camera_{v}" for v in range(frames.shape[1]))
    return score_video(model, instruction, [Views(names=names, frames=frames)])


def test_videos_of_unseen_labs_are_ordered_forward_and_backward(model, episodes):
    forward = [voc(score(model, frames_of(e), e.instruction).progress) for e in episodes]
    backward = [voc(score(model, reverse(frames_of(e)), e.instruction).progress) for e in episodes]
    assert np.mean(forward) > 0.75
    assert np.mean(backward) < -0.5


def test_a_way_back_loses_progress_and_a_second_attempt_gains_it(model, episodes):
    def orders(change) -> float:
        frames = [frames_of(e) for e in episodes]
        curves = [score(model, change(f), e.instruction).progress for f, e in zip(frames, episodes, strict=True)]
        return float(np.mean([order_of_last(curve, len(f)) for curve, f in zip(curves, frames, strict=True)]))

    assert orders(undo) < -0.6
    assert orders(try_again) > 0.7


def test_still_and_black_videos_are_never_done_and_backward_ones_rarely(model, episodes):
    done = {
        case: np.mean([predicts_done(score(model, make(frames_of(e)), e.instruction)) for e in episodes])
        for case, make in NEVER_DONE.items()
    }
    assert done.pop(REVERSED) <= 0.25
    assert done == dict.fromkeys(done, 0)


def test_progress_depends_on_no_later_frame(model, episodes):
    frames, instruction = frames_of(episodes[0]), episodes[0].instruction
    whole, part = score(model, frames, instruction), score(model, frames[:7], instruction)
    np.testing.assert_allclose(part.progress, whole.progress[:7], atol=1e-5)
    np.testing.assert_allclose(part.success, whole.success[:7], atol=1e-5)


def test_uncertainty_is_the_disagreement_of_the_members(model, episodes):
    uncertainty = score(model, frames_of(episodes[0]), episodes[0].instruction).uncertainty
    assert (uncertainty > 0).all() and uncertainty.max() < 0.5


def test_a_slow_video_ends_as_a_fast_one(model, episodes):
    frames, instruction = frames_of(episodes[1]), episodes[1].instruction
    slow = score(model, frames.repeat(3, axis=0), instruction)
    np.testing.assert_allclose(slow.progress[2::3], score(model, frames, instruction).progress, atol=1e-5)


def test_rows_are_independent_and_states_are_values(model, episodes):
    shortest = min(len(frames_of(e)) for e in episodes[:2])
    videos = [frames_of(e)[:shortest] for e in episodes[:2]]
    alone = [score(model, video, e.instruction) for video, e in zip(videos, episodes, strict=False)]
    together = [Views(names=("a",), frames=np.stack([video[t] for video in videos])) for t in range(shortest)]
    state = model.reset(together[0], [e.instruction for e in episodes[:2]])
    for views in together[1:4]:
        _, state = model.step(state, views)
    swapped = state.take(np.array([1, 0]))
    restored = state.put(np.array([0, 1]), swapped.take(np.array([1, 0]))).from_state_dict(state.state_dict())
    for t in range(4, shortest):
        output, restored = model.step(restored, together[t])
        np.testing.assert_allclose(output.progress, [a.progress[t] for a in alone], atol=1e-4)
    np.testing.assert_allclose(swapped.potential(), state.potential()[::-1])


def test_a_hidden_view_carries_the_last_prediction_and_views_are_averaged(model, episodes):
    frames, instruction = frames_of(episodes[2]), episodes[2].instruction
    single, twice = score(model, frames, instruction), score(model, frames.repeat(2, axis=1), instruction)
    np.testing.assert_allclose(twice.progress, single.progress, atol=1e-5)
    hidden = frames.copy()
    hidden[5] = 0
    output = score(model, hidden, instruction)
    assert not output.valid[5] and output.valid.sum() == len(frames) - 1
    assert output.progress[5] == output.progress[4]
    assert np.isnan(output.ood[5]) and np.isfinite(np.delete(output.ood, 5)).all()


def test_images_of_unseen_labs_are_familiar_and_those_of_another_robot_are_not(model, episodes):
    """Where the images are unlike those of training, success is claimed for no video."""
    rates = [(score(model, frames_of(e), e.instruction).ood > 1).mean() for e in episodes]
    assert np.mean(rates) < 0.1
    source = open_dataset(REAL_DATA / "g1_bottle")
    humanoid = source.episode(0, size=model.encoder.image_size, stride=15)
    for video in (frames_of(humanoid), reverse(frames_of(humanoid))):
        output = score(model, video, humanoid.instruction)
        assert (output.ood > 1).all()
        assert not predicts_done(output)


def test_success_fades_above_the_limit():
    ood = torch.tensor([0.0, 1.0, 1.125, 1.25, 9.0])
    assert familiarity(ood).tolist() == [1, 1, 0.5, 0, 0]


def test_another_number_of_views_is_refused(model, episodes):
    frames = frames_of(episodes[0])[:1]
    state = model.reset(Views(names=("a",), frames=frames), ["open it"])
    with pytest.raises(erm.UserError, match="started with 1 views, and goes on with 2"):
        model.step(state, Views(names=("a", "b"), frames=frames.repeat(2, axis=1)))


def test_the_checkpoint_is_small_holds_no_encoder_and_names_its_labs(model, tmp_path, episodes):
    assert sum(path.stat().st_size for path in REAL_CHECKPOINT.iterdir()) <= MAX_BYTES
    manifest = read_manifest(REAL_CHECKPOINT)
    assert {name.partition(".")[0] for name in manifest["tensors"]} == {"grus", "matches", "distribution"}
    assert manifest["facts"]["labs"] == {name: list(labs) for name, labs in vars(LabSplit()).items()}
    assert matches_expected(run_self_test(model, model.input_spec).outputs, read_expected(manifest))
    save_zero_shot_model(tmp_path / "copy", model, manifest["facts"])
    expected = score_episodes(model, episodes[:1])[0]
    np.testing.assert_array_equal(
        score_episodes(load_zero_shot_model(tmp_path / "copy"), episodes[:1])[0].progress, expected.progress
    )


def test_other_encoder_weights_are_refused(model, tmp_path):
    other = ZeroShotModel(model.net, model.encoder, model.text)
    other.encoder = replace_digest(model.encoder)
    save_zero_shot_model(tmp_path / "model", other, {})
    with pytest.raises(erm.CheckpointError, match="trained on other weights of efficientnet_lite0"):
        load_zero_shot_model(tmp_path / "model")
    with pytest.raises(erm.CheckpointError, match="tabletop"):
        load_zero_shot_model(REAL_CHECKPOINT.parent / "tabletop")


def replace_digest(encoder):
    other = encoder.with_graph(b"", encoder._run)
    other.weights_sha256 = "0" * 64
    return other


def test_five_lines_of_python(episodes, tmp_path):
    model = erm.load_reward_model("real")
    assert isinstance(model, erm.ZeroShotRewardModel)
    output = model.score(frames_of(episodes[0])[:, 0], episodes[0].instruction)
    expected = score_episodes(model.model, [episodes[0]])[0]
    np.testing.assert_allclose(output.progress, expected.progress, atol=1e-5)
    model.save(tmp_path / "model")
    with pytest.raises(erm.UserError, match=re.escape("is not empty")):
        model.save(tmp_path / "model")
    renamed = replace(episodes[0], views={"any name": episodes[0].views["exterior"]})
    np.testing.assert_array_equal(score_episodes(model.model, [renamed])[0].progress, expected.progress)
