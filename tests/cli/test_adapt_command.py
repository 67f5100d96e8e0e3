"""`embodied-rm adapt` to a recording, with a curve on held-out attempts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sprites import episode
from tiny_runs import metrics

from embodied_rm.cli.main import main
from embodied_rm.data.video.files import write_video
from embodied_rm.types import Episode

QUICK = ("encoder=patch_tower_tiny", "image_size=[32,32]", "steps=4", "batch_size=2", "frames_per_episode=3")


def write_recording(folder: Path, trial: Episode, *, is_annotated: bool) -> None:
    folder.mkdir(parents=True)
    for view, frames in trial.views.items():
        write_video(folder / f"{view}.mp4", frames, trial.fps)
    (folder / "success.json").write_text(json.dumps({"success": trial.success}))
    if is_annotated:
        entries = [{"annotation": s.name, "start_frame_id": s.start, "end_frame_id": s.end} for s in trial.subtasks]
        (folder / "annotated_keyframes.json").write_text(json.dumps(entries))
        (folder / "task_instruction.json").write_text(json.dumps([trial.instruction]))


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """A demonstration, and attempts without an instruction, of which only the outcome is known."""
    write_recording(tmp_path / "demonstration", episode(0), is_annotated=True)
    for number in (1, 2, 3):
        trial = episode(number, success=number != 1)
        write_recording(tmp_path / "attempts" / f"trial_{number}", trial, is_annotated=False)
    return tmp_path


def adapt(folder: Path, *words: str) -> int:
    return main(["adapt", f"data={folder / 'demonstration'}", f"out={folder / 'run'}", *QUICK, *words])


def test_the_curve_on_held_out_attempts_is_reported(recordings: Path) -> None:
    assert adapt(recordings, f"held_out={recordings / 'attempts'}", "eval_percent=50") == 0
    held_out = metrics(recordings / "run")["adapt"]["held_out"]
    assert [row["step"] for row in held_out["curve"]] == [0, 2, 4]
    assert all({"voc", "success_auc"} <= set(row) and "mae" not in row for row in held_out["curve"])
    assert "attempts" in (recordings / "run" / "report.html").read_text()
    assert json.loads((recordings / "run" / "held_out.json").read_text()) == held_out


def test_without_held_out_attempts_there_is_no_curve(recordings: Path) -> None:
    assert adapt(recordings) == 0
    assert "held_out" not in metrics(recordings / "run")["adapt"]
    assert not (recordings / "run" / "report.html").exists()


def test_the_demonstration_is_no_held_out_attempt(recordings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert adapt(recordings, f"held_out={recordings / 'demonstration'}") == 2
    assert "held out, but the same episode is trained on" in capsys.readouterr().err
    assert adapt(recordings, "patience=2") == 2
    assert "patience=2 counts evaluations of held_out, and there is none" in capsys.readouterr().err
