"""Scores as a table: one row a frame, in the columns of LeRobot's `sarm_progress.parquet` and ours behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.atomic_file import atomic_file
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.metrics import prediction_interval
from embodied_rm.types import IntArray, RewardOutput

TABLE_FILE = "progress.parquet"
"""Name of the table in the run folder."""
ROW_GROUP_SIZE = 1 << 20
"""Rows of a row group: no more of them lie in memory while the table is put together."""
COLUMN_BY_FIELD = {
    "progress": "progress_dense",
    "success": "success",
    "subtask": "subtask",
    "uncertainty": "uncertainty",
    "valid": "valid",
    "ood": "ood",
}
"""Field of `Progress` -> its column."""


def first_frame_indices(meta: Sequence[EpisodeMeta]) -> IntArray:
    """The number of each episode's first frame among those of all, where they do not say themselves."""
    cumulative_starts = np.concatenate([[0], np.cumsum([episode_meta.length for episode_meta in meta])])[:-1]
    return np.array(
        [
            start if episode_meta.dataset_from_index is None else episode_meta.dataset_from_index
            for episode_meta, start in zip(meta, cumulative_starts, strict=True)
        ]
    )


def episode_table(
    row: int, prediction: RewardOutput, meta: EpisodeMeta, first_frame: int, interval_scale: float | None = None
) -> pa.Table:
    """The prediction of one episode; `first`: the number of its first frame.

    `index` counts the frames of the whole dataset and `episode_index` its episodes, those that are left out too. A
    model of one granularity gives `progress_sparse` and `progress_dense` alike. An unscored frame is not `valid` and
    carries the last progress. With the `interval_scale` of a calibrated model the table also has the bounds `low` and
    `high`. `ood` is nan of a model that does not tell.
    """
    frame_index = np.arange(len(prediction))
    columns = {
        "index": frame_index + first_frame,
        "episode_index": np.full(len(prediction), row if meta.episode_index is None else meta.episode_index),
        "frame_index": frame_index,
        "progress_sparse": prediction.progress,
    }
    columns |= {column: getattr(prediction, name) for name, column in COLUMN_BY_FIELD.items()}
    if interval_scale is not None:
        columns["low"], columns["high"] = prediction_interval(
            prediction.progress, prediction.uncertainty, interval_scale
        )
    return pa.table(columns)


def prediction_from_table(table: pa.Table) -> RewardOutput:
    """The prediction that a table of one episode holds."""
    return RewardOutput(**{name: table[column].to_numpy() for name, column in COLUMN_BY_FIELD.items()})


def write_table(path: Path, episodes: Iterable[pa.Table]) -> None:
    """The tables of all episodes as one, in this order; at least one. Written beside the target, then renamed."""
    groups = split_row_groups(episodes)
    group = next(groups)
    with atomic_file(path) as partial_path, pq.ParquetWriter(partial_path, group.schema) as writer:
        writer.write_table(group, ROW_GROUP_SIZE)
        for group in groups:
            writer.write_table(group, ROW_GROUP_SIZE)


def split_row_groups(tables: Iterable[pa.Table], group_size: int = ROW_GROUP_SIZE) -> Iterator[pa.Table]:
    """The tables one after the other, cut anew: each but the last has so many rows."""
    buffered: list[pa.Table] = []
    for table in tables:
        buffered.append(table)
        while sum(map(len, buffered)) >= group_size:
            merged = pa.concat_tables(buffered)
            yield merged.slice(0, group_size)
            buffered = [merged.slice(group_size)] if len(merged) > group_size else []
    if buffered:
        yield pa.concat_tables(buffered)
