"""A pipe, a device, a folder, a circular link or a sparse file in place of any file that is read: one sentence at once,
neither a hang nor a traceback.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from signal import ITIMER_REAL, SIGALRM, setitimer, signal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from lerobot_v21 import write_v21_dataset
from painted_frames import make_episode

from embodied_rm.api.hub_upload import read_card
from embodied_rm.checkpoint_io import load_tensors, read_manifest, save_tensors
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.data.score_table import ScoreTable, read_scores
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.goal_images import read_goal_images
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.judges.transcript import TranscriptChat
from embodied_rm.models.released import lora_adapters, robometer_weights, sarm_net
from embodied_rm.programs.program import read_program
from embodied_rm.rl.watch.log_rows import read_rows
from embodied_rm.run_folder import RunFolder
from embodied_rm.score.select_episodes import read_predictions
from embodied_rm.score.shards import read_shard_metadata
from embodied_rm.tabletop.policies import policy_task
from embodied_sim.divergence import read_divergence
from embodied_sim.sim_errors import SimError

KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "circular link": lambda path: path.symlink_to(path.name),
    "sparse file": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}
JUDGE = JudgeConfig(type="vip", folder=Path("none"))
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "log": ("progress.jsonl", read_rows),
    "goal image": ("front.png", lambda path: read_goal_images([path])),
    "goal image of a judge": ("front.png", lambda path: judge_digest(replace(JUDGE, goal_images=(path,)))),
    "manifest": ("manifest.json", lambda path: read_manifest(path.parent)),
    "program": ("program.txt", lambda path: read_program(path, {})),
    "transcript": ("transcript.jsonl", lambda path: TranscriptChat(path, None)),
    "config": ("config.json", lambda path: RunFolder(path.parent).read_json("config.json")),
    "policy": ("config.json", lambda path: policy_task(path.parent)),
    "scores": ("progress.parquet", lambda path: ScoreTable.read(path.parent)),
    "scores to filter by": ("progress.parquet", lambda path: read_predictions(path.parent, [])),
    "shard": ("00000.parquet", read_shard_metadata),
    "dump": ("divergence_000000.json", read_divergence),
    "settings of SARM": ("config.json", sarm_net.read_config),
    "settings of Robometer": ("config.yaml", robometer_weights.read_settings),
    "adapter": ("adapter_config.json", lora_adapters._read_config),
}
READ_AS_MISSING = {"transcript", "settings of Robometer"}
"""Files that need not exist."""


class HangingError(BaseException):
    """A reader waits for a file; no reader takes it for an error of the file."""


@contextmanager
def time_limit() -> Iterator[None]:
    def fail(*_: object) -> None:
        raise HangingError

    previous, timer = signal(SIGALRM, fail), setitimer(ITIMER_REAL, 20)
    try:
        yield
    finally:
        setitimer(ITIMER_REAL, *timer)
        signal(SIGALRM, previous)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_none_is_refused(tmp_path: Path, reader: str, kind: str) -> None:
    name, read = READERS[reader]
    KINDS[kind](tmp_path / name)
    if reader in READ_AS_MISSING and kind != "sparse file":
        with time_limit():
            try:
                read(tmp_path / name)
            except UserError as error:
                assert name in str(error)
        return
    errors = (UserError, SimError, OSError) if kind == "circular link" else (UserError, SimError)
    with time_limit(), pytest.raises(errors, match=rf"{name}|no run folder") as failure:
        read(tmp_path / name)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_no_file_are_refused(tmp_path: Path, kind: str) -> None:
    save_tensors(tmp_path, {"weight": torch.zeros(3)}, {"architecture": "test"})
    (path,) = tmp_path.glob("tensors-*")
    path.unlink()
    KINDS[kind](path)
    with time_limit(), pytest.raises(UserError, match=path.name):
        load_tensors(tmp_path, "test")


def test_a_sparse_card_is_refused(tmp_path: Path) -> None:
    KINDS["sparse file"](tmp_path / "README.md")
    with pytest.raises(UserError, match=r"README\.md: cannot be read as text .*MiB"):
        read_card(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_any_file_of_a_dataset(tmp_path: Path, version: str, kind: str) -> None:
    root = tmp_path / "dataset"
    episodes = [make_episode(index, 6, views=("front",)) for index in range(2)]
    if version == "v2.1":
        write_v21_dataset(root, episodes)
    else:
        with DatasetWriter(root) as writer:
            for episode in episodes:
                writer.add(episode)
    shutil.copytree(root, tmp_path / "copy")
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        path.unlink()
        KINDS[kind](path)
        with time_limit():
            try:
                issues = open_dataset(root).issues
            except DataError as error:
                message = str(error)
            else:
                message = " ".join(map(str, issues))
        is_missing = kind == "circular link" and path.name == "info.json"  # without it, the folder is no dataset
        assert is_missing or path.name == "stats.json" or path.name in message, "it is not read, or named"
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)


def test_scores_of_other_types_are_refused(tmp_path: Path) -> None:
    names = ("progress_dense", "success", "uncertainty", "ood")
    columns: dict[str, Any] = {name: [0.0, 0.0] for name in names}
    columns |= {"index": [0, 1], "episode_index": [0, 0], "frame_index": [0, 1], "subtask": [0, 0]}
    columns["valid"] = [True, True]
    pq.write_table(pa.table(columns), tmp_path / "progress.parquet")
    assert len(read_scores(tmp_path / "progress.parquet", list(columns))) == 2
    huge = np.array([2**64 - 1] * 2, np.uint64)
    changes: list[dict[str, Any]] = [
        {"index": ["a", "b"]},
        {"success": None},
        {"episode_index": [None, 0]},
        {"episode_index": huge},
        {"episode_index": [0.0, 0.0]},
        {"valid": [[1], [2]]},
        {"valid": [1.0, 1.0]},
        {"frame_index": None},
        {"frame_index": [0, 0]},
        {"frame_index": [1, 2]},
        {"progress_dense": [0.5, 7.5]},
        {"progress_dense": [2.0**100, 0.5]},
        {"progress_dense": [0.5, math.nan]},
        {"success": [0.0, -1.0]},
    ]
    for change in changes:
        table = {name: values for name, values in {**columns, **change}.items() if values is not None}
        pq.write_table(pa.table(table), tmp_path / "progress.parquet")
        with pytest.raises(DataError, match="not written by embodied-rm score"):
            read_predictions(tmp_path, [])
