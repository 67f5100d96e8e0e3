"""Scores as a table: one row per frame, with the columns of LeRobot's `sarm_progress.parquet` and further ones."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.atomic_file import atomic_file
from embodied_rm.data.dataset_files import check_utf8
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.metrics import prediction_interval
from embodied_rm.types import IntArray, RewardOutput

TABLE_FILE = "progress.parquet"  # name of the table in the run folder
ROW_GROUP_SIZE = 1 << 20  # rows per row group, and the maximum number of rows in memory while the table is written
COLUMN_BY_FIELD = {"progress": "progress_dense"}
COLUMN_BY_FIELD |= {name: name for name in ("success", "subtask", "uncertainty", "valid", "ood")}
"""Field of `RewardOutput` -> its column."""


def first_frame_indices(meta: Sequence[EpisodeMeta]) -> IntArray:
    """Return for each episode the index of its first frame in the dataset, from its metadata or by counting."""
    starts = np.cumsum([0, *(episode.length for episode in meta)])
    indices = (episode.dataset_from_index for episode in meta)
    return np.array([start if index is None else index for index, start in zip(indices, starts, strict=False)])


def episode_table(
    row: int, prediction: RewardOutput, meta: EpisodeMeta, first_frame: int, interval_scale: float | None = None
) -> pa.Table:
    """Return the prediction of one episode as a table with one row per frame.

    `row` is the index in the source, `first_frame` that of the first frame in the dataset. `index` and `episode_index`
    also count episodes that are left out. `progress_sparse` equals `progress_dense`. An unscored frame is invalid and
    has the last progress. `ood` is nan for a model without that score. Without an interval scale, there are no columns
    `low` and `high`.
    """
    frame_index = np.arange(len(prediction))
    columns = {
        "index": frame_index + first_frame,
        "episode_index": np.full(len(prediction), meta.index_in_dataset(row)),
        "frame_index": frame_index,
        "progress_sparse": prediction.progress,
    }
    columns |= {column: getattr(prediction, name) for name, column in COLUMN_BY_FIELD.items()}
    if interval_scale is not None:
        bounds = prediction_interval(prediction.progress, prediction.uncertainty, interval_scale)
        columns["low"], columns["high"] = bounds
    return pa.table(columns)


def prediction_from_table(table: pa.Table) -> RewardOutput:
    """Return the prediction in the table of one episode."""
    return RewardOutput(**{name: table[column].to_numpy() for name, column in COLUMN_BY_FIELD.items()})


def write_table(path: Path, episodes: Iterable[pa.Table]) -> None:
    """Write the tables of all episodes as one file, atomically. There must be at least one table."""
    groups = split_row_groups(episodes)
    group = next(groups)
    check_utf8(path)
    with atomic_file(path) as partial_path, pq.ParquetWriter(partial_path, group.schema) as writer:
        writer.write_table(group, ROW_GROUP_SIZE)
        for group in groups:
            writer.write_table(group, ROW_GROUP_SIZE)


def split_row_groups(tables: Iterable[pa.Table], group_size: int = ROW_GROUP_SIZE) -> Iterator[pa.Table]:
    """Concatenate the tables and split them into groups of `group_size` rows; the last group may be smaller."""
    buffered: list[pa.Table] = []
    for table in tables:
        buffered.append(table)
        while sum(map(len, buffered)) >= group_size:
            merged = pa.concat_tables(buffered)
            yield merged.slice(0, group_size)
            buffered = [merged.slice(group_size)] if len(merged) > group_size else []
    if buffered:
        yield pa.concat_tables(buffered)
