"""The bundled reward model reaches the metrics of its card, measured again on some of the card's episodes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch

from embodied_rm.audit.cases import AUDIT_CASES
from embodied_rm.audit.runner import evaluate_case, score_trials
from embodied_rm.audit.test_set import AuditDataset, AuditRewardConfig
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.evaluate import evaluate, predict_episodes
from embodied_rm.experiments.evaluate_model import RecordConfig
from embodied_rm.labels.subtasks import task_of
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.paths import BUNDLED_CHECKPOINT, resolve_reward_model
from embodied_rm.report.model_card import model_card
from embodied_rm.run_folder import NullReporter
from embodied_rm.score import read_episodes_for
from embodied_rm.tabletop.splits import load_split
from embodied_rm.types import Episode

SEEN_TASKS = ("lift_cube", "open_drawer")
SPLITS = {
    "seen": SEEN_TASKS,
    "unseen_phrasing": SEEN_TASKS,
    "unseen_camera": SEEN_TASKS,
    "unseen_task": ("close_drawer",),
}
"""Split -> its first tasks. Their episodes are recorded from the same seeds with or without the other tasks."""
TOLERANCE = {
    **{"voc": 0.03, "voc_reversed": 0.03, "success_auc": 0.05, "mae": 0.01, "mae_failures": 0.015},
    **{"subtask_accuracy": 0.05, "uncertainty_correlation": 0.15, "interval_coverage": 0.1},
}
"""Largest difference of a task's metrics from the card: rendering differs between machines."""
AUDIT_CASE_NAMES = (
    "unmodified_success",
    "unfinished",
    "reversed",
    "frozen_start",
    "black_images",
    "another_task",
    "hovering",
    "goal_inset",
)
"""Audit cases that measure a share: their 95 % intervals must overlap those of the card."""
MAX_BYTES = 20_000_000
LONG_CHECKPOINT = BUNDLED_CHECKPOINT.parent / "long"
CANDIDATE = BUNDLED_CHECKPOINT.parents[1] / "candidates" / "tabletop"
"""Passes more of the audit, and orders worse: docs/results/reward_model_choices.md."""

Metrics = Mapping[str, float]


@pytest.fixture(scope="module")
def card() -> dict:
    return json.loads((resolve_reward_model(None) / "card.json").read_text())


@pytest.fixture(scope="module")
def net() -> ProgressNet:
    return load_progress_net(resolve_reward_model(None))


@pytest.fixture(scope="module")
def sample(net: ProgressNet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Episode]]:
    """Split -> episodes of its tasks, recorded like those of the card."""
    return {name: record_episodes(net, name, tmp_path_factory.mktemp(name) / "run") for name in SPLITS}


def record_episodes(net: ProgressNet, split: str, out: Path) -> list[Episode]:
    config = RecordConfig()
    args = [
        f"split={split}",
        f"tasks=[{','.join(SPLITS[split])}]",
        f"num_successes={config.num_successes}",
        f"num_failures={config.num_failures}",
        f"seed={config.seed}",
        f"frame_stride={config.frame_stride}",
        f"action_noise={config.action_noise}",
        f"speed_range={list(config.speed_range)}",
        "env.views=[front,side,wrist]",
        f"out={out}",
    ]
    assert main(["collect", *args]) == 0
    return list(read_episodes_for(net.input_spec, open_dataset(out / "dataset")))


def metrics_by_task(net: ProgressNet, episodes: Sequence[Episode]) -> dict[str, Metrics]:
    """Task -> its metrics."""
    predictions, rows = predict_episodes(net, episodes), range(len(episodes))
    rows_by_task = {task: [row for row in rows if task_of(episodes[row]) == task] for task in map(task_of, episodes)}
    return {
        task: evaluate(net, episodes, NullReporter(), predictions.take(task_rows), rows=task_rows)["reward_model"]
        for task, task_rows in rows_by_task.items()
    }


def deviations(measured: Mapping[str, Metrics], card: Mapping, split: str) -> dict[str, tuple[float, float]]:
    """Task and metric -> (measured, stated), where they differ by more than the tolerance."""
    stated = card["splits"][split]["tasks"]
    return {
        f"{task} {metric}": (measured[task][metric], stated[task][metric])
        for task in measured
        for metric, tolerance in TOLERANCE.items()
        if metric in stated[task]
        if abs(measured[task][metric] - stated[task][metric]) > tolerance
    }


@pytest.mark.parametrize("split", SPLITS)
def test_metrics_match_the_card(split: str, net: ProgressNet, card: dict, sample: dict) -> None:
    assert deviations(metrics_by_task(net, sample[split]), card, split) == {}


def test_other_weights_deviate_from_the_card(net: ProgressNet, card: dict, sample: dict) -> None:
    torch.manual_seed(0)
    other_metrics = metrics_by_task(ProgressNet(net.config).eval(), sample["seen"])
    assert {f"{task} {metric}" for task in SEEN_TASKS for metric in ("voc", "voc_reversed", "mae")} <= set(
        deviations(other_metrics, card, "seen")
    )


@pytest.mark.parametrize("name", AUDIT_CASE_NAMES)
def test_audit_matches_the_card(name: str, net: ProgressNet, card: dict, sample: dict) -> None:
    case = next(case for case in AUDIT_CASES if case.name == name)
    trials = case.make_trials(AuditDataset(sample["seen"], AuditRewardConfig()))
    low, high = evaluate_case(
        case, trials, score_trials(net, trials, AuditRewardConfig()), AuditRewardConfig()
    ).as_dict()["interval"]
    stated_low, stated_high = card["cases"][name]["interval"]
    assert low <= stated_high and stated_low <= high


@pytest.mark.parametrize("folder", [BUNDLED_CHECKPOINT, CANDIDATE])
def test_readme_is_generated_from_the_card(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    assert (folder / "README.md").read_text() == model_card(card)


def test_the_candidate_was_trained_from_the_bundled_model() -> None:
    assert load_progress_net(CANDIDATE).capabilities.interval_scale is not None
    card = json.loads((CANDIDATE / "card.json").read_text())
    assert card["init_sha256"] == read_manifest(BUNDLED_CHECKPOINT)["manifest_sha256"]


def test_checkpoint_is_small_and_names_its_data(net: ProgressNet, card: dict) -> None:
    assert sum(path.stat().st_size for path in BUNDLED_CHECKPOINT.iterdir()) <= MAX_BYTES
    assert {path.suffix for path in BUNDLED_CHECKPOINT.iterdir()} == {".safetensors", ".json", ".md"}
    assert net.config.views == ("front", "side", "wrist") and net.config.encoder.image_size == (64, 64)
    assert read_manifest(BUNDLED_CHECKPOINT)["facts"]["splits"] == ["seen 0"]
    # Metrics of all tasks of the split are on the card.
    assert set(card["splits"]["seen"]["tasks"]) == set(load_split("seen").tasks)


def test_long_checkpoint_scores_the_long_tasks(tmp_path: Path) -> None:
    """Its README states errors of 0.02 and 0.08 and VOC of 0.98 and more, including rollouts of learned policies. Here
    there are few episodes, of scripted experts only.
    """
    args = ("tasks=[cube_in_drawer,sort_two]", "num_successes=3", "num_failures=3", "frame_stride=4", "seed=901")
    assert main(["collect", *args, "env.views=[front,side,wrist]", f"out={tmp_path / 'run'}"]) == 0
    net = load_progress_net(LONG_CHECKPOINT)
    measured = metrics_by_task(net, list(read_episodes_for(net.input_spec, open_dataset(tmp_path / "run" / "dataset"))))
    assert measured["cube_in_drawer"]["mae"] < 0.05 and measured["sort_two"]["mae"] < 0.12
    assert all(numbers["voc"] > 0.95 for numbers in measured.values())
