"""A corpus scored from the command line: killed, gone on with, by others; and what may not be gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import corruptions
import pytest
from score_corpus import NUM_EPISODES, save_net, write_corpus

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.score import TABLE_FILE
from embodied_rm.score.shards import SHARDS_DIR

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A corpus whose third episode is damaged where only decoding finds it, and a model."""
    folder = tmp_path_factory.mktemp("corpus")
    videos = write_corpus(folder / "data") / "videos"
    corruptions.corrupt_packet(sorted(videos.glob("*top/*/*"))[2])
    save_net(folder / "net")
    return [f"data={folder / 'data'}", f"checkpoint={folder / 'net'}", "shard_episodes=1"]


@pytest.fixture(scope="module")
def undisturbed(words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    assert main(["score", *words, "videos=false", f"out={out}"]) == 0
    return out


def until(done, what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end, f"not within {PATIENCE_S:.0f} s: {what}"
        time.sleep(0.02)


def nobody_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_run_that_was_killed_goes_on_in_other_hands_to_the_same_table(
    words: list[str], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["score", *words, f"out={tmp_path}"]
    child = subprocess.Popen(
        [sys.executable, "-m", "embodied_rm", *line, "num_workers=2"], stdout=subprocess.DEVNULL, start_new_session=True
    )
    until(lambda: list(tmp_path.glob(f"{SHARDS_DIR}/*.parquet")) or child.poll() is not None, "a shard")
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: nobody_left(child.pid), "the end of the workers, who have lost their driver")
    assert main(line) == 2 and "already holds a run" in capsys.readouterr().err
    assert main([*line, "resume=true"]) == 0
    assert (tmp_path / TABLE_FILE).read_bytes() == (undisturbed / TABLE_FILE).read_bytes()
    metas = LeRobotDataset(words[0].removeprefix("data=")).meta
    told = json.loads((tmp_path / "metrics.json").read_text())["score"]
    assert told["skipped_episodes"] == [metas[2].name] and (told["episodes"], told["invalid"]) == (NUM_EPISODES - 1, 0)
    assert told["frames"] == sum(meta.length for meta in metas) - metas[2].length
    for number, meta in enumerate(metas):
        assert {(tmp_path / f"{meta.name}{kind}").exists() for kind in (".png", ".mp4")} == {number != 2}
    page = (tmp_path / "report.html").read_text()
    assert metas[1].name in page and metas[2].name not in page
    assert f"left out: {metas[2].name}" in "".join(capsys.readouterr().out.split("\n"))


def test_what_may_not_be_gone_on_with(
    words: list[str], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(undisturbed, tmp_path / "run")
    line = ["score", *words, "videos=false", f"out={tmp_path / 'run'}", "resume=true"]
    assert main(line) == 0 and "is already finished" in capsys.readouterr().out
    (tmp_path / "run" / "metrics.json").unlink()
    assert main([*line, "frame_stride=2"]) == 2 and "other values of frame_stride" in capsys.readouterr().err
    checkpoint = Path(words[1].removeprefix("checkpoint="))
    shutil.copytree(checkpoint, tmp_path / "before")
    try:
        save_net(checkpoint, seed=1)
        assert main(line) == 2
        assert "00000.parquet: was scored with other model" in capsys.readouterr().err.replace("\n", "")
    finally:
        shutil.rmtree(checkpoint)
        shutil.copytree(tmp_path / "before", checkpoint)
    assert main(line) == 0, "nothing is missing: it is put together again"
    assert (tmp_path / "run" / TABLE_FILE).read_bytes() == (undisturbed / TABLE_FILE).read_bytes()
