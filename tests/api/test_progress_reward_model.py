"""The Python API: five lines score a clip, and mistakes in arguments are our errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import embodied_rm as erm
from embodied_rm.api.clip_output import done_frames
from embodied_rm.models.scoring import score_episodes

SIZE = 64


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


def clip(length: int = 6, seed: int = 0, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (length, size, size, 3), np.uint8)


def test_a_clip_is_scored_as_an_episode_is(model: erm.ProgressRewardModel) -> None:
    frames = {"front": clip(seed=1), "wrist": clip(seed=2)}
    output = model.score(frames, "open the drawer")
    episode = erm.Episode(name="a", views=frames, instruction="open the drawer", fps=10)
    (expected,) = score_episodes(model.net, [episode])
    for name in ("progress", "valid", "subtask", "success", "uncertainty", "ood"):
        np.testing.assert_array_equal(getattr(output, name), getattr(expected, name))
        assert len(getattr(output, name)) == 6
    assert output.done.dtype == np.bool_ and output.done.shape == (6,)


def test_an_array_is_the_first_view_at_any_size(model: erm.ProgressRewardModel) -> None:
    frames = clip(size=SIZE)
    named = model.score({"front": frames}, "open the drawer")
    np.testing.assert_array_equal(model.score(frames, "open the drawer").progress, named.progress)
    assert len(model.score(clip(size=90), "open the drawer")) == 6


@pytest.mark.parametrize("instruction", ["open the drawer", "open the drawer; then lift the cube"])
def test_a_live_episode_is_scored_as_its_clip_is(model: erm.ProgressRewardModel, instruction: str) -> None:
    frames = {"front": clip(5, seed=1, size=90), "wrist": clip(5, seed=2, size=90)}
    rule = {"success_threshold": 1e-9, "success_patience": 3}
    expected = model.score(frames, instruction, **rule)
    scorer = model.frame_scorer(instruction, **rule)
    outputs = [scorer.score({view: video[t] for view, video in frames.items()}) for t in range(5)]
    for name in ("progress", "valid", "subtask", "success", "uncertainty", "ood", "done"):
        live = np.concatenate([getattr(output, name) for output in outputs])
        np.testing.assert_allclose(live, getattr(expected, name), atol=1e-5, err_msg=name)


def test_a_live_frame_is_one_image(model: erm.ProgressRewardModel) -> None:
    scorer = model.frame_scorer("open the drawer")
    with pytest.raises(erm.UserError, match=r"must be uint8 \[T, H, W, 3\]"):
        scorer.score(clip(2))
    assert len(scorer.score(clip(1)[0])) == 1


def test_no_frame_depends_on_a_later_one(model: erm.ProgressRewardModel) -> None:
    frames = clip(8)
    whole, start = model.score(frames, "open the drawer"), model.score(frames[:5], "open the drawer")
    np.testing.assert_array_equal(whole.progress[:5], start.progress)


@pytest.mark.parametrize(
    ("success", "patience", "expected"),
    [
        ([0.1, 0.9, 0.9, 0.2, 0.9], 2, [False, False, True, True, True]),
        ([0.9, 0.2, 0.9, 0.2], 2, [False] * 4),
        ([0.5], 1, [True]),
        ([float("nan")] * 3, 1, [False] * 3),
    ],
)
def test_done_needs_consecutive_frames_and_stays(success: list[float], patience: int, expected: list[bool]) -> None:
    zeros = np.zeros(len(success), np.float32)
    output = erm.RewardOutput(
        progress=zeros,
        valid=np.ones(len(success), bool),
        subtask=zeros.astype(np.int64),
        success=np.float32(success),
        uncertainty=zeros,
    )
    assert done_frames(output, 0.5, patience).tolist() == expected


@pytest.mark.parametrize(
    ("frames", "instruction", "message"),
    [
        (clip().astype(np.float32), "go", r"frames of view 'front' must be uint8 \[T, H, W, 3\].*got float32"),
        (clip()[0], "go", "must be uint8"),
        (clip(0), "go", "T, H, W >= 1"),
        (clip()[:, :0], "go", "T, H, W >= 1"),
        ([clip()[0], clip()[0, :9]], "go", "frames of view 'front' must have one size"),
        (clip(), None, "instruction must be a sentence, got None"),
        (clip(), "  ", "instruction must be a sentence"),
        ({"base": clip()}, "go", "the model knows the views front, side, wrist, got base: name your cameras"),
        ({"front": clip(5), "wrist": clip(6)}, "go", "views must have the same number of frames"),
        ({}, "go", "at least one view"),
    ],
)
def test_mistakes_in_arguments_are_user_errors(
    model: erm.ProgressRewardModel, frames: object, instruction: object, message: str
) -> None:
    with pytest.raises(erm.UserError, match=message):
        model.score(frames, instruction)  # type: ignore[arg-type]
    assert issubclass(erm.UserError, ValueError)


def test_a_mirrored_or_reversed_array_is_scored_as_its_copy(model: erm.ProgressRewardModel) -> None:
    frames = np.random.default_rng(0).integers(0, 256, (5, 80, 90, 3), np.uint8)
    for view in (frames[::-1], frames[..., ::-1], frames[:, ::-1]):
        np.testing.assert_array_equal(model.score(view, "go").progress, model.score(view.copy(), "go").progress)


@pytest.mark.parametrize("value", [np.nan, -0.1, 100.0])
def test_progress_that_is_no_fraction_is_refused(value: float) -> None:
    progress = np.array([0.0, value, 1.0], np.float32)
    with pytest.raises(erm.UserError, match=r"progress must be in \[0, 1\] at every frame"):
        erm.Episode(name="e", views={"front": clip(3)}, instruction="go", fps=10.0, progress=progress)


def test_a_rule_that_cannot_be_is_refused(model: erm.ProgressRewardModel) -> None:
    with pytest.raises(erm.UserError, match="success_patience"):
        model.score(clip(), "go", success_patience=0)


def test_save_and_load_keep_every_number(model: erm.ProgressRewardModel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = erm.load_reward_model(tmp_path / "model")
    assert loaded.metadata == model.metadata
    frames = clip()
    np.testing.assert_array_equal(loaded.score(frames, "go").progress, model.score(frames, "go").progress)
    with pytest.raises(erm.UserError, match="is not empty"):
        model.save(tmp_path / "model")
    model.save(tmp_path / "model", overwrite=True)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(erm.UserError, match=str(tmp_path)):
        erm.load_reward_model(tmp_path)


def test_it_is_a_reward_model_for_environments(model: erm.ProgressRewardModel) -> None:
    frames = clip(2)
    views = [erm.Views(names=("front",), frames=frame[None, None]) for frame in frames]
    state = model.reset(views[0], ["go"])
    output, _ = model.step(state, views[1])
    np.testing.assert_array_equal(output.progress, model.score(frames, "go").progress[1:])


def annotated(seed: int, success: bool = True) -> erm.Episode:
    subtasks = (erm.Subtask(name="reach", start=0, end=5), erm.Subtask(name="lift", start=5, end=10))
    views = {"top": clip(10, seed, 48)}
    progress = None if success else np.linspace(0, 0.5, 10, dtype=np.float32)
    return erm.Episode(
        name=f"episode_{seed}",
        views=views,
        instruction="lift it",
        fps=10,
        subtasks=subtasks,
        success=success,
        progress=progress,
    )


def test_train_score_evaluate_and_audit_in_python(tmp_path: Path) -> None:
    episodes = [annotated(seed) for seed in range(3)]
    trained = erm.train(episodes, steps=2, batch_size=2, frames_per_episode=3, image_size=(32, 32), max_seconds=None)
    assert trained.input_spec.views == ("top",) and trained.metadata["episodes"] == 3
    assert len(trained.score(clip(4), "lift it")) == 4
    table = trained.evaluate([annotated(9), annotated(10, success=False)])
    assert {"reward_model", "baselines", "episodes"} == set(table)
    results = trained.audit([annotated(9), annotated(10, success=False)])
    assert {result.case.name for result in results} and all(result.num_trials >= 0 for result in results)
    further = erm.train(
        episodes, init_from=trained, steps=1, batch_size=2, frames_per_episode=3, folder=tmp_path / "run"
    )
    assert further.input_spec.image_size == (32, 32)
    assert erm.load_reward_model(tmp_path / "run").metadata["episodes"] == 3


def test_an_unknown_training_key_names_the_nearest() -> None:
    with pytest.raises(erm.UserError, match=r"unknown key of TrainConfig 'step'\. Did you mean 'steps'"):
        erm.train([], step=3)


def test_every_export_is_there_and_documented() -> None:
    assert set(erm.__all__) == set(erm.EXPORTS)
    for name in erm.__all__:
        assert getattr(erm, name).__doc__, name
    assert erm.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        erm.nothing  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, embodied_rm; print(sorted({'torch', 'numpy', 'mujoco', 'av'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
