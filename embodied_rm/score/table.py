"""Scores as a table: one row a frame, in the columns of LeRobot's `sarm_progress.parquet` and ours behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.atomic_file import atomic_file
from embodied_rm.data.source import EpisodeMeta
from embodied_rm.metrics import interval
from embodied_rm.types import IntArray, Progress

TABLE = "progress.parquet"
"""Name of the table in the run folder."""
ROWS = 1 << 20
"""Rows of a row group: no more of them lie in memory while the table is put together."""
COLUMNS = {
    "value": "progress_dense",
    "success": "success",
    "stage": "stage",
    "spread": "spread",
    "valid": "valid",
    "ood": "ood",
}
"""Field of `Progress` -> its column."""


def first_frames(meta: Sequence[EpisodeMeta]) -> IntArray:
    """The number of each episode's first frame among those of all, where they do not say themselves."""
    counted = np.concatenate([[0], np.cumsum([one.length for one in meta])])[:-1]
    return np.array([start if one.first is None else one.first for one, start in zip(meta, counted, strict=True)])


def episode_table(row: int, curve: Progress, meta: EpisodeMeta, first: int, scale: float | None = None) -> pa.Table:
    """The judgement of one episode; `first`: the number of its first frame.

    `index` counts the frames of the whole dataset and `episode_index` its episodes, those that are left out too. A
    model of one granularity gives `progress_sparse` and `progress_dense` alike. An unscored frame is not `valid` and
    carries the last progress. With the `interval_scale` of a calibrated model the table also has the bounds `low` and
    `high`. `ood` is nan of a model that does not tell.
    """
    frame = np.arange(len(curve))
    columns = {
        "index": frame + first,
        "episode_index": np.full(len(curve), row if meta.number is None else meta.number),
        "frame_index": frame,
        "progress_sparse": curve.value,
    }
    columns |= {column: getattr(curve, name) for name, column in COLUMNS.items()}
    if scale is not None:
        columns["low"], columns["high"] = interval(curve.value, curve.spread, scale)
    return pa.table(columns)


def curve_of(table: pa.Table) -> Progress:
    """The judgement that a table of one episode holds."""
    return Progress(**{name: table[column].to_numpy() for name, column in COLUMNS.items()})


def write_table(path: Path, episodes: Iterable[pa.Table]) -> None:
    """The tables of all episodes as one, in this order; at least one. Written beside the target, then renamed."""
    groups = row_groups(episodes)
    group = next(groups)
    with atomic_file(path) as partial, pq.ParquetWriter(partial, group.schema) as writer:
        writer.write_table(group, ROWS)
        for group in groups:
            writer.write_table(group, ROWS)


def row_groups(tables: Iterable[pa.Table], rows: int = ROWS) -> Iterator[pa.Table]:
    """The tables one after the other, cut anew: each but the last has so many rows."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        while sum(map(len, held)) >= rows:
            whole = pa.concat_tables(held)
            yield whole.slice(0, rows)
            held = [whole.slice(rows)] if len(whole) > rows else []
    if held:
        yield pa.concat_tables(held)
