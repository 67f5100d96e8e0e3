"""Scores beside a LeRobot dataset, where LeRobot reads them: RA-BC weights and frame signals."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embodied_rm.atomic_file import atomic_file
from embodied_rm.data.lerobot.parquet import read_footer
from embodied_rm.data.score_table import read_scores, split_episodes
from embodied_rm.errors import UserError
from embodied_rm.metrics.advantages import progress_advantage
from embodied_rm.score.write_scores import TABLE_FILE

RABC_FILE, SIGNALS_FILE = "sarm_progress.parquet", "frame_signals.parquet"
"""Files in the dataset: that of LeRobot's RA-BC weights, and one in the format `lerobot.frame_signals`, version 1.

LeRobot reads the first from release 0.4.3 on. The second is a draft, LeRobot's pull request 4554, whose later revisions
have other keys and another folder; no release up to 0.6.1 reads it.
"""
INDEX_COLUMNS = ("index", "episode_index", "frame_index")
RABC_COLUMNS = (*INDEX_COLUMNS, "progress_sparse", "progress_dense")
"""LeRobot recognizes the file by these columns alone."""
SCORE_COLUMNS = (*RABC_COLUMNS, "valid", "success", "uncertainty")
"""Columns of a score table that are written back."""
ADVANTAGE_HORIZON_FRAMES = 50  # as many as RA-BC weights compare
METADATA_PREFIX = "lerobot.reward_scoring."
WRITER_KEY = b"embodied_rm_version"
DESCRIPTORS: Mapping[str, Mapping[str, Any]] = {
    "advantage": {
        "description": f"Change of progress over the next {ADVANTAGE_HORIZON_FRAMES} frames, minus that of an episode "
        "of median length (RECAP).",
        "direction": "higher",
        "bounds": None,
        "comparison_scope": "dataset",
    },
    "progress": {
        "description": "Fraction of the task that is done, by a reward model.",
        "direction": "higher",
        "bounds": [0.0, 1.0],
        "comparison_scope": "task",
    },
    "success": {
        "description": "Probability that the task is done, by a reward model.",
        "direction": "higher",
        "bounds": [0.0, 1.0],
        "comparison_scope": "task",
    },
    "uncertainty": {
        "description": "Expected absolute error of the progress.",
        "direction": "lower",
        "bounds": None,
        "comparison_scope": "dataset",
    },
}
"""Signal -> its descriptor, apart from `unit` and `allow_nan`."""


def check_writable(dataset: Path) -> None:
    """Raise `UserError` unless scores can be written beside a dataset: LeRobot's, local, without foreign scores."""
    if not (dataset / "meta" / "info.json").is_file():
        raise UserError(f"write_back=true needs a LeRobot dataset on this machine, {dataset} is none")
    for name in (RABC_FILE, SIGNALS_FILE):
        path = dataset / name
        if path.exists() and WRITER_KEY not in (read_footer(path).metadata or {}):
            raise UserError(f"{path} was not written by embodied-rm: move it away, or leave out write_back=true")


def write_back(run_folder: Path, dataset: Path, model: Mapping[str, str]) -> list[Path]:
    """Write the scores of a run beside the dataset; unscored frames are nan.

    Args:
        run_folder: Folder of a finished `score`.
        dataset: LeRobot dataset whose episodes were scored.
        model: Name and digest of the reward model, for the provenance.

    Returns:
        The files: `RABC_FILE` and `SIGNALS_FILE`.

    Raises:
        UserError: The dataset is not LeRobot's, or has such files of another program.
    """
    check_writable(dataset)
    scores = read_scores(run_folder / TABLE_FILE, SCORE_COLUMNS)
    progress = pc.if_else(scores["valid"], scores["progress_dense"], np.float32("nan"))
    scores = scores.drop_columns(["progress_sparse", "progress_dense"])
    scores = scores.append_column("progress_sparse", progress).append_column("progress_dense", progress)
    common = {WRITER_KEY: version("embodied-rm").encode(), b"reward_model_path": model["name"].encode()}
    write_table(dataset / RABC_FILE, scores.select(RABC_COLUMNS), common)
    signals = frame_signals(scores)
    write_table(dataset / SIGNALS_FILE, signals, {**common, **signal_metadata(signals, model)})
    return [dataset / RABC_FILE, dataset / SIGNALS_FILE]


def frame_signals(scores: pa.Table) -> pa.Table:
    """Return the index columns, and the signals in alphabetical order; success only if the model predicts it."""
    episodes = list(split_episodes(scores))
    task_frames = float(np.median([len(episode) for episode in episodes]))
    advantage = np.concatenate([
        progress_advantage(episode["progress_dense"].to_numpy(), ADVANTAGE_HORIZON_FRAMES, task_frames)
        for episode in episodes
    ])  # fmt: skip
    columns = {name: scores[name] for name in INDEX_COLUMNS}
    columns |= {"advantage": pa.array(advantage), "progress": scores["progress_dense"]}
    if not pc.all(pc.is_nan(scores["success"])).as_py():
        columns["success"] = scores["success"]
    return pa.table({**columns, "uncertainty": scores["uncertainty"]})


def signal_metadata(signals: pa.Table, model: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the metadata of `lerobot.frame_signals`, version 1."""
    names = [name for name in signals.column_names if name not in INDEX_COLUMNS]
    descriptors = {name: {**DESCRIPTORS[name], "unit": None, "allow_nan": True} for name in names}
    entries = {
        "format": "lerobot.frame_signals",
        "schema_version": "1",
        "provenance": encode_json({"embodied_rm_version": version("embodied-rm"), "model": dict(model)}),
        "descriptors": encode_json(descriptors),
        "episode_indices": encode_json(sorted(set(signals["episode_index"].to_pylist()))),
    }
    return {f"{METADATA_PREFIX}{key}".encode(): value.encode() for key, value in entries.items()}


def encode_json(value: Any) -> str:
    """Return JSON with sorted keys and without white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def write_table(path: Path, table: pa.Table, metadata: Mapping[bytes, bytes]) -> None:
    """Write a table with its metadata, atomically."""
    with atomic_file(path) as partial:
        pq.write_table(table.replace_schema_metadata(dict(metadata)), partial)
