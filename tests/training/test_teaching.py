"""A reward model that learns from the learner's episodes: better, or as before; round by round; resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sprites import episodes

from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.errors import UserError
from embodied_rm.labels.labeled_episode import label_ground_truth
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import NullReporter, RunFolder
from embodied_rm.training import TrainConfig, teaching, train
from embodied_rm.training.augment import AugmentConfig
from embodied_rm.training.held_out import held_out_metrics
from embodied_rm.training.teaching import LabelFn, TeachConfig, Teacher, repeat_rare_outcomes
from embodied_rm.types import Episode

SUCCESSES = episodes(12, failures=False)
ATTEMPTS = episodes(24, start=200)  # of the learner: half of them fail, which the model never saw
UNSEEN = episodes(16, start=500)
TEACH = TeachConfig(every=3, steps=60, batch_size=8, learning_rate=2e-3)


@pytest.fixture(scope="module")
def deceived(tmp_path_factory: pytest.TempPathFactory) -> ProgressNet:
    """Return a model of successes alone."""
    torch.set_num_threads(1)
    config = TrainConfig(
        image_size=(32, 32), steps=60, batch_size=8, frames_per_episode=6, augment=AugmentConfig(color_jitter=0.05)
    )
    return train(SUCCESSES, config, RunFolder.open(tmp_path_factory.mktemp("deceived")), NullReporter())


def open_teacher(net: ProgressNet, folder: Path, label: LabelFn = lambda episode: episode, **config: object) -> Teacher:
    settings = replace(TEACH, **config)  # type: ignore[arg-type]
    return Teacher(net, settings, folder, NullReporter(), own_data=SUCCESSES, label=label)


def error(net: ProgressNet) -> float:
    return held_out_metrics(score_episodes(net, UNSEEN), label_ground_truth(UNSEEN))["error"]


def weights(net: ProgressNet) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def show(teacher: Teacher, batch: list[Episode]) -> None:
    for episode in batch:
        teacher.submit(episode)


def test_the_model_learns_from_attempts_when_a_round_is_due(deceived: ProgressNet, tmp_path: Path) -> None:
    before = weights(deceived).clone()
    teacher = open_teacher(deceived, tmp_path)
    show(teacher, ATTEMPTS)
    assert teacher.model_at(2) is deceived
    taught = teacher.model_at(3)
    assert taught is not deceived and teacher.rounds == 1 and torch.equal(weights(deceived), before)
    assert error(taught) < error(deceived)
    assert taught.capabilities.success_threshold is not None
    assert teacher.model_at(5) is taught, "the next round is due in iteration 6"


def test_without_better_weights_only_the_threshold_changes(deceived: ProgressNet, tmp_path: Path) -> None:
    """The learner has changed, so that the model would believe too many or too few of its episodes."""
    teacher = open_teacher(deceived, tmp_path, learning_rate=1e-12)
    show(teacher, ATTEMPTS)
    net = teacher.model_at(3)
    assert teacher.rounds == 1 and torch.equal(weights(net), weights(deceived))
    threshold = net.capabilities.success_threshold
    assert threshold is not None
    believed = [output.success[1:].max() >= threshold for output in score_episodes(net, ATTEMPTS)]
    assert sum(believed) == sum(bool(episode.success) for episode in ATTEMPTS)


def test_attempts_of_unknown_outcome_change_no_threshold(deceived: ProgressNet, tmp_path: Path) -> None:
    teacher = open_teacher(deceived, tmp_path, learning_rate=1e-12)
    show(teacher, [replace(episode, success=None, progress=None, subtasks=()) for episode in ATTEMPTS])
    assert teacher.model_at(3) is deceived and teacher.rounds == 1


def test_an_episode_is_held_out_in_all_rounds_or_in_none(deceived: ProgressNet, tmp_path: Path, monkeypatch) -> None:
    learned, held_out = set(), set()

    def spy(learned_episodes, config, run, reporter, curve, *args, **options):
        learned.update(fingerprint(episode) for episode in learned_episodes)
        held_out.update(fingerprint(episode) for episode in curve.episodes)
        return train(learned_episodes, config, run, reporter, curve, *args, **options)

    monkeypatch.setattr(teaching, "train", spy)
    teacher = open_teacher(deceived, tmp_path, every=1, max_episodes=20, steps=1)
    for number in range(1, 5):
        show(teacher, episodes(9, start=1000 * number))
        teacher.model_at(number)
    assert len(held_out) >= 4 * 2 and not learned & held_out


def test_repeated_episodes_of_its_own_data_count_once(deceived: ProgressNet, tmp_path: Path) -> None:
    teacher = Teacher(deceived, replace(TEACH, steps=1), tmp_path, NullReporter(), own_data=[*SUCCESSES, *SUCCESSES])
    show(teacher, ATTEMPTS)
    teacher.model_at(3)
    facts = RunFolder.open(tmp_path / "1", resume=True).read_json("metrics.json")["teach"]
    assert facts["held_out_episodes"] == len(ATTEMPTS) // 4 + len(SUCCESSES) // 4


def test_too_few_episodes_teach_nothing(deceived: ProgressNet, tmp_path: Path) -> None:
    teacher = open_teacher(deceived, tmp_path)
    show(teacher, ATTEMPTS[:7])
    assert teacher.model_at(3) is deceived
    show(teacher, ATTEMPTS[7:])
    assert teacher.model_at(6) is not deceived, "they count in the next round"


def test_failures_without_progress_alone_teach_nothing(deceived: ProgressNet, tmp_path: Path) -> None:
    """On them no model is better than another; with successes of its own data held out, one is."""
    failures = [replace(e, progress=None, subtasks=()) for e in episodes(30, start=200) if not e.success]
    alone = Teacher(deceived, TEACH, tmp_path / "alone", NullReporter())
    show(alone, failures)
    assert alone.model_at(3) is deceived
    teacher = open_teacher(deceived, tmp_path / "both")
    show(teacher, failures)
    assert teacher.model_at(3) is not deceived


def test_a_resumed_teacher_finds_its_rounds(deceived: ProgressNet, tmp_path: Path) -> None:
    teacher = open_teacher(deceived, tmp_path)
    show(teacher, ATTEMPTS)
    taught = teacher.model_at(3)
    resumed = open_teacher(deceived, tmp_path)
    found = resumed.model_at(3)
    assert np.array_equal(
        np.concatenate([output.progress for output in score_episodes(found, UNSEEN)]),
        np.concatenate([output.progress for output in score_episodes(taught, UNSEEN)]),
    )
    assert found.capabilities.success_threshold == taught.capabilities.success_threshold


def test_episodes_are_labeled_before_they_are_learned(deceived: ProgressNet, tmp_path: Path) -> None:
    labeled: list[str] = []

    def reject_most(episode: Episode) -> Episode | None:
        labeled.append(episode.name)
        return None if len(labeled) > 5 else episode

    teacher = open_teacher(deceived, tmp_path, label=reject_most)
    show(teacher, ATTEMPTS)
    assert teacher.model_at(3) is deceived and len(labeled) == len(ATTEMPTS), "five labeled episodes are too few"


def test_rare_outcomes_are_repeated_to_a_third() -> None:
    success, failure = (next(e for e in ATTEMPTS if e.success is outcome) for outcome in (True, False))
    unknown = replace(success, success=None)
    for rare, frequent in ((success, failure), (failure, success)):
        repeated = repeat_rare_outcomes([rare, rare, *[frequent] * 40, unknown])
        outcomes = [episode.success for episode in repeated]
        assert [outcomes.count(value) for value in (rare.success, frequent.success, None)] == [20, 40, 1]
    as_many = [success, failure, failure]
    assert repeat_rare_outcomes(as_many) == as_many and repeat_rare_outcomes([failure]) == [failure]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"every": -1}, r"teach\.every must be >= 0"),
        ({"held_out_share": 0.6}, r"teach\.held_out_share must be in \(0, 0\.5\], got 0\.6"),
        ({"learning_rate": 0.0}, r"teach\.learning_rate must be > 0, got 0\.0"),
        ({"max_episodes": 7}, r"teach\.max_episodes must be >= 8"),
    ],
)
def test_wrong_settings_are_errors(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TeachConfig(**settings)  # type: ignore[arg-type]
