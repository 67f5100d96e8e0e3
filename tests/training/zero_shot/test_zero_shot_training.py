"""Features, clips, losses and calibration of the zero-shot model, and `train real` from recordings to scores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from real_data import REAL_DATA, copy_droid, droid_rows

import embodied_rm as erm
from embodied_rm.cli.commands.train_real import check_sentences
from embodied_rm.cli.main import main
from embodied_rm.config_schema import load_group_choice
from embodied_rm.data.lab_split import LabSplit
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.training.zero_shot.calibrate_readouts import fit_readout
from embodied_rm.training.zero_shot.clips import MAX_FRAMES, clip_indices, draw_batch, new_frames
from embodied_rm.training.zero_shot.episode_features import (
    EpisodeFeatures,
    augmented_copy,
    encode_episodes,
    mirror_sentence,
)
from embodied_rm.training.zero_shot.fit_nets import contrastive_loss, progress_loss
from embodied_rm.training.zero_shot.train_zero_shot import fit_distribution

EPISODES_PER_LAB = 4


@pytest.fixture(scope="module")
def small_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some short episodes of each of three labs."""
    return copy_droid(tmp_path_factory.mktemp("lab") / "data", ["lab_0", "lab_4", "lab_5"], EPISODES_PER_LAB)


def test_no_lab_and_no_episode_is_on_two_sides_of_the_split():
    split = load_group_choice("labs", "droid", LabSplit)
    assert split == LabSplit()
    for key in ("name", "exterior"):
        parts = [{row[key] for row in droid_rows() if row["text/lab"] in labs} for labs in vars(split).values()]
        assert sum(map(len, parts)) == len(set.union(*parts)) == len(droid_rows())


def test_a_split_that_leaks_or_names_an_unknown_lab_is_refused(small_lab):
    with pytest.raises(erm.UserError, match=r"lab_1 is in labs.train and labs.test"):
        LabSplit(train=("lab_1",), test=("lab_1",))
    with pytest.raises(erm.UserError, match="test is empty"):
        LabSplit(test=())
    source = open_dataset(small_lab, None)
    assert [source.meta[row].metadata["lab"] for row in LabSplit(test=("lab_5",)).rows(source, "test")] == [
        "lab_5"
    ] * EPISODES_PER_LAB
    with pytest.raises(erm.DataError, match=r"no episode of lab_9; the dataset has lab_0, lab_4, lab_5"):
        LabSplit(train=("lab_9",)).rows(source, "train")
    with pytest.raises(erm.DataError, match="no column text/lab"):
        LabSplit().rows(open_dataset(REAL_DATA / "bridge_rollouts", None), "train")


def test_calibration_needs_a_lab_with_two_instructions():
    pairs = [("lab_1", "open it"), ("lab_1", "open it"), ("lab_2", "close it"), ("lab_2", "lift it")]
    meta = [SimpleNamespace(metadata={"lab": lab}, instruction=text) for lab, text in pairs]
    check_sentences(SimpleNamespace(meta=meta), range(4))
    with pytest.raises(DataError, match="no lab has two different instructions"):
        check_sentences(SimpleNamespace(meta=meta), range(3))


def test_a_mirrored_sentence_exchanges_left_and_right():
    assert mirror_sentence("Put the left block right of the Leftmost cup") == (
        "Put the right block left of the rightmost cup"
    )
    assert mirror_sentence("lift the copyright sign") == "lift the copyright sign"


def test_augmented_videos_are_alike_in_all_frames():
    frames = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 40, 60, 3), np.uint8), 3, axis=0)
    video = augmented_copy(frames, 1, np.random.default_rng(1))
    assert video.dtype == np.uint8 and video.shape[1] <= 40 and video.shape[2] <= 60
    assert (video == video[:1]).all()


def test_clips_stay_in_the_video_and_run_in_three_ways():
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(300):
        length = int(rng.integers(2, 90))
        indices = clip_indices(length, rng)
        assert indices.min() >= 0 and indices.max() < length and len(indices) <= 2 * MAX_FRAMES
        steps = np.sign(np.diff(indices))
        turns = np.diff(steps[steps != 0])
        kinds.add("turned" if (turns != 0).any() else "forward" if steps.sum() > 0 else "backward")
        assert (turns != 0).sum() <= 1
    assert kinds == {"forward", "backward", "turned"}


def test_frames_that_hardly_change_are_no_new_frames():
    cells = torch.zeros(5, 16, 4)
    cells[2:, :, 0] = 1.0  # squared change of each cell: 1
    cells[4, :, 0] = 1.5
    assert new_frames(cells, 0.5) == [0, 2]
    assert new_frames(cells, 0.2) == [0, 2, 4]


def make_features(name: str, length: int = 9) -> EpisodeFeatures:
    generator = torch.Generator().manual_seed(length)
    cells = torch.randn(2, length, 16, 6, generator=generator).half()
    return EpisodeFeatures(name, "lab", ("take it left", "take it right"), cells, torch.zeros(2, 49, 6).half())


def test_a_batch_pads_shorter_clips_and_mirrors_the_sentence_with_the_video():
    batch, sentences = draw_batch([make_features("a", 5), make_features("b", 30)], 2, 0.0, np.random.default_rng(0))
    assert batch.cells.shape[:2] == batch.progress.shape == batch.known.shape
    assert (batch.known.sum(dim=1) >= 2).all() and batch.known.any(dim=0).all()
    assert set(sentences) <= {"take it left", "take it right"}


def test_the_loss_is_least_at_the_true_progress_and_direction():
    batch, _ = draw_batch([make_features("a", 20)], 1, 0.0, np.random.default_rng(3))
    change = torch.diff(batch.progress, prepend=batch.progress[:, :1], dim=1)
    best = torch.stack([torch.logit(batch.progress.clamp(1e-4, 1 - 1e-4)), 20 * change.sign()], dim=-1)
    assert progress_loss(best, batch) < progress_loss(torch.zeros_like(best), batch) < progress_loss(-best, batch)


def test_equal_sentences_are_no_negatives_of_each_other():
    scores = torch.tensor([[1.0, 9.0, 0.0], [9.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert contrastive_loss(scores, ["a", "a", "b"]) < contrastive_loss(scores, ["a", "c", "b"]) / 5


def test_a_readout_recovers_the_odds_of_two_balanced_classes():
    # Gaussians at 0 and 1 with variance 1: log odds x - 1/2, whatever the sizes of the classes.
    generator = torch.Generator().manual_seed(0)
    negative, positive = torch.randn(8000, 1, generator=generator), 1 + torch.randn(2000, 1, generator=generator)
    positive_class = torch.arange(10_000) >= 8000
    readout = fit_readout(torch.cat([negative, positive]), positive_class)
    assert readout.slopes[0] == pytest.approx(1, abs=0.1) and readout.bias == pytest.approx(-0.5, abs=0.1)


def test_a_limit_needs_a_hundred_frames():
    net = SimpleNamespace(mean_texture=lambda cells: cells[..., :3].mean(dim=-2))
    many, few = [make_features(str(i), 60 + i) for i in range(2)], [make_features("few", 99)]
    distribution = fit_distribution(net, many, [make_features("enough", 100)])
    assert distribution(torch.zeros(3)) < 1 < distribution(torch.full((3,), 9.0))
    with pytest.raises(DataError, match=r"labs\.validation: its videos have 99 frames, at least 100 are needed"):
        fit_distribution(net, many, few)


def test_score_says_that_a_video_is_unlike_those_of_training(tmp_path, capsys):
    few = ["episode_indices=[0]", "frame_stride=60", "plots=false", "videos=false", "report_episodes=0"]
    data = REAL_DATA / "g1_bottle"
    assert main(["score", str(data), "checkpoint=real", *few, f"out={tmp_path}"]) == 0
    assert "100% of the frames are out of distribution" in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "metrics.json").read_text())["score"]["ood_rate"] == 1


def test_encoded_episodes_are_read_again(small_lab, tmp_path):
    source, encoder = open_dataset(small_lab, None), open_frozen_encoder()
    first = list(encode_episodes(source, [0], encoder, 2, tmp_path))
    changed = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = list(encode_episodes(source, [0], encoder, 2, tmp_path))
    assert changed == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    torch.testing.assert_close(first[0].cells, again[0].cells)
    assert first[0].cells.shape[0] == 2 and first[0].cells.shape[2:] == (16, 472)
    assert not torch.equal(first[0].cells[0], first[0].cells[1])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="damaged"):
        list(encode_episodes(source, [0], encoder, 2, tmp_path))


def test_features_of_another_video_of_the_same_name_are_not_read(small_lab, tmp_path):
    source, encoder = open_dataset(small_lab, None), open_frozen_encoder()
    (first,) = encode_episodes(source, [0], encoder, 1, tmp_path / "features")
    shutil.copytree(small_lab, tmp_path / "other")
    videos = sorted((tmp_path / "other").rglob("*.mp4"))
    own = next(path for path in source.files(0) if path.suffix == ".mp4").name
    other = next(path for path in videos if path.name != own)
    shutil.copy(other, next(path for path in videos if path.name == own))
    (second,) = encode_episodes(open_dataset(tmp_path / "other", None), [0], encoder, 1, tmp_path / "features")
    assert first.name == second.name and not torch.equal(first.cells, second.cells)


def test_train_real_from_recordings_to_scores(small_lab, tmp_path, capsys):
    run, labs = tmp_path / "run", ["labs.train=[lab_0]", "labs.validation=[lab_4]", "labs.test=[lab_5]"]
    small = ["num_copies=2", "nets.num_members=1", "nets.progress.steps=3", "nets.match.steps=3", "final=true"]
    assert main(["train", "real", f"data={small_lab}", *labs, *small, f"out={run}"]) == 0
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["episodes"] == dict.fromkeys(("train", "validation", "test"), EPISODES_PER_LAB)
    assert set(metrics["scores"]) == {"validation", "test"}
    assert 0 <= metrics["scores"]["test"]["out of distribution"] <= 1
    card = (run / "checkpoint" / "README.md").read_text()
    assert f"lab_5 (test, {EPISODES_PER_LAB} episodes)" in card
    losses = metrics["held_out_loss"]
    assert losses.keys() == {"progress, member 1 of 1", "match, member 1 of 1"}
    assert f"| match, member 1 of 1 | {losses['match, member 1 of 1'][0]:.3f} | " in card
    assert "validation labs" in (run / "report.html").read_text()
    for part in ("validation", "test"):
        assert {"future", "unmodified_success", "reversed", "frozen_start", "black_images"} <= set(
            metrics["audit"][part]
        )
        assert metrics["audit"][part]["future"]["value"] == 0  # a prediction uses no later frame
    assert "another_goal" not in metrics["audit"]["test"]  # needs a column of goals
    assert "| `black_images` | at most 0.05 | " in card and f"({EPISODES_PER_LAB} trials)" in card
    video = small_lab / "videos"
    trial = next(video.iterdir())
    assert main(["score", str(trial), f"checkpoint={run}", "instruction=take it", f"out={tmp_path / 'scored'}"]) == 0
    capsys.readouterr()
    assert main(["score", str(trial), "instruction=take it", f"out={tmp_path / 'default'}"]) == 0
    printed = capsys.readouterr().out
    assert "scored by checkpoint=real" in printed and "out of distribution:" not in printed
    bad = ["labs.train=[lab_4]", "labs.validation=[lab_4]"]
    assert main(["train", "real", f"data={small_lab}", *bad, f"out={tmp_path / 'bad'}"]) == 2
    again = ["train", "real", f"data={small_lab}", f"checkpoint={run / 'checkpoint'}"]
    assert main([*again, *labs, "final=true", f"out={tmp_path / 'again'}"]) == 0
    measured = json.loads((tmp_path / "again" / "metrics.json").read_text())
    for scores in (*measured["scores"].values(), *metrics["scores"].values()):
        scores.pop("seconds per minute of video")
    assert all(measured[key] == metrics[key] for key in ("scores", "audit", "parameters", "episodes", "labs"))
    assert (tmp_path / "again" / "checkpoint" / "README.md").read_text() == card
    capsys.readouterr()
    assert main([*again, "labs.train=[lab_5]", "labs.validation=[lab_4]", "labs.test=[lab_0]"]) == 2
    assert "was trained with labs=" in capsys.readouterr().err  # its training lab would be measured
