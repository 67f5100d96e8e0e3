"""Scoring of a corpus: kill, resume with other workers, and rejected resumes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import corruptions
import pytest
from forked_program import ForkedProgram
from score_corpus import NUM_EPISODES, save_net, write_corpus

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.score import TABLE_FILE
from embodied_rm.score.shards import SHARDS_DIR

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def corpus_args(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A model, and a corpus whose third episode cannot be decoded."""
    folder = tmp_path_factory.mktemp("corpus")
    videos = write_corpus(folder / "data") / "videos"
    corruptions.corrupt_packet(sorted(videos.glob("*top/*/*"))[2])
    save_net(folder / "net")
    return [f"data={folder / 'data'}", f"checkpoint={folder / 'net'}", "shard_episodes=1"]


@pytest.fixture(scope="module")
def undisturbed(corpus_args: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert main(["score", *corpus_args, "videos=false", f"out={out}"]) == 0
    return out


def until(done, description: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {description}"
        time.sleep(0.02)


def process_group_ended(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_run_resumes_with_other_workers_to_the_same_table(
    corpus_args: list[str],
    undisturbed: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ["score", *corpus_args, f"out={tmp_path}"]
    program = ForkedProgram([*args, "num_workers=2"], tmp_path_factory.mktemp("printed"))
    until(lambda: list(tmp_path.glob(f"{SHARDS_DIR}/*.parquet")) or not program.is_running, "a shard")
    program.send_signal(signal.SIGKILL)
    assert program.wait() == -signal.SIGKILL, program.errors
    until(lambda: process_group_ended(program.pid), "the end of the workers after the loss of their driver")
    assert main(args) == 2 and "already holds a run" in capsys.readouterr().err
    assert main([*args, "resume=true"]) == 0
    assert (tmp_path / TABLE_FILE).read_bytes() == (undisturbed / TABLE_FILE).read_bytes()
    metas = LeRobotDataset(corpus_args[0].removeprefix("data=")).meta
    metrics = json.loads((tmp_path / "metrics.json").read_text())["score"]
    assert metrics["skipped_episodes"] == [metas[2].name] and (metrics["episodes"], metrics["invalid"]) == (
        NUM_EPISODES - 1,
        0,
    )
    assert metrics["frames"] == sum(meta.length for meta in metas) - metas[2].length
    for number, meta in enumerate(metas):
        assert {(tmp_path / f"episodes/{meta.name}{kind}").exists() for kind in (".png", ".mp4")} == {number != 2}
    page = (tmp_path / "report.html").read_text()
    assert metas[1].name in page and metas[2].name not in page
    assert f"left out: {metas[2].name}" in "".join(capsys.readouterr().out.split("\n"))


def test_runs_with_other_settings_cannot_be_resumed(
    corpus_args: list[str], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(undisturbed, tmp_path / "run")
    args = ["score", *corpus_args, "videos=false", f"out={tmp_path / 'run'}", "resume=true"]
    assert main(args) == 0 and "is already finished" in capsys.readouterr().out
    (tmp_path / "run" / "metrics.json").unlink()
    assert main([*args, "frame_stride=2"]) == 2 and "other values of frame_stride" in capsys.readouterr().err
    checkpoint = Path(corpus_args[1].removeprefix("checkpoint="))
    shutil.copytree(checkpoint, tmp_path / "before")
    try:
        save_net(checkpoint, seed=1)
        assert main(args) == 2
        assert "00000.parquet: was scored with other model" in capsys.readouterr().err.replace("\n", "")
    finally:
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "before", checkpoint)
    assert main(args) == 0, "all shards are there: only the table is written again"
    assert (tmp_path / "run" / TABLE_FILE).read_bytes() == (undisturbed / TABLE_FILE).read_bytes()
