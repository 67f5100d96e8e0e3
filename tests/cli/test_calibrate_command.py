"""`embodied-rm calibrate` fits what its episodes permit, and names the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from score_corpus import save_net
from sprites import episode
from tiny_runs import metrics

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Episode

NO_OOD = "not calibrated: out-of-distribution score"
NO_INTERVAL = "not calibrated: confidence interval"
NO_THRESHOLD = "not calibrated: success threshold"


def make_trial(number: int, *, success: bool | None, is_annotated: bool = False, length: int = 60) -> Episode:
    """A trial of which the outcome is known at most; subtasks of a success determine its progress."""
    trial = replace(episode(number, success=bool(success), length=length), success=success, progress=None)
    return trial if is_annotated else replace(trial, subtasks=())


def calibrate(folder: Path, trials: Sequence[Episode], checkpoint: Path | None = None) -> int:
    with DatasetWriter(folder / "data") as writer:
        for trial in trials:
            writer.add(trial)
    checkpoint = save_net(folder / "net") if checkpoint is None else checkpoint
    return main(["calibrate", f"data={folder / 'data'}", f"checkpoint={checkpoint}", f"out={folder / 'run'}"])


def test_the_threshold_is_fitted_from_outcomes_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = [make_trial(number, success=number % 2 == 0) for number in range(6)]
    assert calibrate(tmp_path, trials) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert NO_INTERVAL in output and NO_OOD not in output and NO_THRESHOLD not in output
    fitted = metrics(tmp_path / "run")["calibrate"]
    assert fitted["interval_scale"] is None and fitted["half_split_coverage"] is None and fitted["median_ood"] > 0
    net = load_progress_net(tmp_path / "run" / "checkpoint")
    assert net.capabilities.interval_scale is None
    assert net.capabilities.success_threshold == fitted["success_threshold"]
    last = [output.success[-1] for output in score_episodes(net, list(open_dataset(tmp_path / "data")))]
    assert min(last) < fitted["success_threshold"] < max(last), "it lies between the last frames, the only known ones"


def test_a_few_annotated_episodes_among_outcomes_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trials = [make_trial(number, success=number % 2 == 0, is_annotated=number < 9) for number in range(12)]
    assert calibrate(tmp_path, trials) == 0
    assert "not calibrated" not in capsys.readouterr().out
    assert metrics(tmp_path / "run")["calibrate"]["interval_scale"] > 0


def test_few_frames_of_known_outcome_permit_a_threshold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The distribution of a model that was calibrated before is kept; its interval is not."""
    annotated = [make_trial(number, success=number > 1, is_annotated=True) for number in range(8)]
    assert calibrate(tmp_path / "first", annotated) == 0
    before = load_progress_net(tmp_path / "first" / "run" / "checkpoint")
    capsys.readouterr()
    trials = [make_trial(number, success=number % 2 == 0, length=16) for number in range(4)]
    assert calibrate(tmp_path / "second", trials, tmp_path / "first" / "run") == 0
    output = " ".join(capsys.readouterr().out.split())
    assert NO_OOD in output and NO_INTERVAL in output and NO_THRESHOLD not in output
    after = load_progress_net(tmp_path / "second" / "run" / "checkpoint")
    assert after.config.median_ood == before.config.median_ood
    assert before.capabilities.interval_scale is not None and after.capabilities.interval_scale is None
    assert after.capabilities.success_threshold is not None


@pytest.mark.parametrize("success", [True, False])
def test_outcomes_of_one_kind_permit_no_threshold(
    success: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(tmp_path, [make_trial(number, success=success) for number in range(4)]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert NO_THRESHOLD in output and NO_INTERVAL in output and NO_OOD not in output


def test_episodes_that_permit_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate(tmp_path, [make_trial(number, success=True, length=16) for number in range(3)]) == 2
    error = capsys.readouterr().err
    for part in ("out-of-distribution score", "confidence interval", "success threshold"):
        assert f"no {part} (needs" in error
    assert not (tmp_path / "run").exists()


def test_episodes_of_which_nothing_is_known_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate(tmp_path, [make_trial(number, success=None) for number in range(3)]) == 2
    assert "neither progress nor outcome is known" in capsys.readouterr().err
