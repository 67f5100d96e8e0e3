"""Predictions of a reward model for a dataset, as written by `embodied-rm score`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from embodied_rm.data.dataset_files import read_json
from embodied_rm.data.lerobot.parquet import read_footer, read_parquet
from embodied_rm.data.source import stride_indices
from embodied_rm.errors import DataError
from embodied_rm.types import BoolArray, Episode, RewardOutput, equal_runs

SCORES_FILE, CONFIG_FILE = "progress.parquet", "config.json"
MAX_SCORES_BYTES = 1 << 33  # of the scores of 100 million frames
SCORE_COLUMNS = {"value": "progress_dense", "success": "success", "valid": "valid"}
ORDER_COLUMNS = ("episode_index", "frame_index")
INTEGER_COLUMNS = ("index", *ORDER_COLUMNS, "subtask")
ROUNDING = 1e-3  # by which a progress or a probability may lie outside [0, 1]


@dataclass(frozen=True, kw_only=True)
class ScoreTable:
    """The predictions of one scoring run."""

    path: Path
    tables: Mapping[int, pa.Table]  # episode index in the dataset -> its rows
    frame_stride: int  # every `frame_stride`-th frame was scored, and the last one

    @classmethod
    def read(cls, run_folder: Path) -> ScoreTable:
        """Read the predictions in a run folder."""
        path = run_folder / SCORES_FILE
        if not path.exists():
            raise DataError(f"{run_folder}: not written by embodied-rm score, it has no {SCORES_FILE}")
        table = read_scores(path, list(SCORE_COLUMNS.values()))
        config = read_json(run_folder / CONFIG_FILE, "JSON", dict).get("config")
        frame_stride = config.get("frame_stride") if isinstance(config, dict) else None
        if type(frame_stride) is not int or frame_stride < 1:
            raise DataError(f"{run_folder / CONFIG_FILE}: not written by embodied-rm score, it has no frame_stride")
        tables = {part["episode_index"][0].as_py(): part for part in split_episodes(table)}
        return cls(path=path, tables=tables, frame_stride=frame_stride)

    def attach_predictions(self, episode: Episode, episode_index: int, length: int, stride: int) -> Episode:
        """Return an episode that was read with `stride` with its predictions; `length` counts its stored frames.

        Raises `DataError` if it was not scored, or its stored length differs.
        """
        table = self.tables.get(episode_index)
        if table is None or len(table) != length:
            counts = f"{length} frames, {'none' if table is None else len(table)} of them scored"
            raise DataError(f"{self.path}: {episode.name} has {counts}: run embodied-rm score on this dataset")
        frame_indices = stride_indices(length, stride)
        columns = (table[column].to_numpy(zero_copy_only=False) for column in SCORE_COLUMNS.values())
        value, success, valid = (column[frame_indices] for column in columns)
        valid = valid & self._scored_mask(length)[frame_indices]
        return replace(episode, predictions=to_reward_output(value, success, valid))

    def _scored_mask(self, length: int) -> BoolArray:
        """bool [length]: the frames that were scored; the frames in between repeat the previous score."""
        mask = np.zeros(length, bool)
        mask[stride_indices(length, self.frame_stride)] = True
        return mask


def read_scores(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read columns of a table of `embodied-rm score`, and its `ORDER_COLUMNS`, in the order of episodes and frames.

    `DataError` if it has not all, other values than `score` writes, or not each frame of an episode once.
    """
    stored, names = read_footer(path).schema.to_arrow_schema(), list(dict.fromkeys((*ORDER_COLUMNS, *columns)))
    for name in names:
        if stored.names.count(name) != 1 or not _is_written(name, stored.field(name).type):
            raise DataError(
                f"{path}: not written by embodied-rm score, its column {name} is missing or of another type"
            )
    table = read_parquet(path, names, max_bytes=MAX_SCORES_BYTES)
    if any(column.null_count for column in table.columns):
        raise DataError(f"{path}: not written by embodied-rm score, it has empty cells")
    table = table.sort_by([(name, "ascending") for name in ORDER_COLUMNS])
    _check_frames(path, table)
    _check_shares(path, table)
    return table


def _is_written(name: str, arrow_type: pa.DataType) -> bool:
    """Return whether a column has a type of those that `score` writes; the largest unsigned one overflows NumPy's."""
    if name == "valid":
        return pa.types.is_boolean(arrow_type)
    is_integer = pa.types.is_integer(arrow_type) and arrow_type != pa.uint64()
    return is_integer or (pa.types.is_floating(arrow_type) and name not in INTEGER_COLUMNS)


def _check_frames(path: Path, table: pa.Table) -> None:
    """Raise `DataError` unless each episode of a sorted table has the frames 0, 1, 2, ..."""
    frame_index = table["frame_index"].to_numpy()
    for episode_index, start, end in equal_runs(table["episode_index"].to_numpy()):
        if not np.array_equal(frame_index[start:end], np.arange(end - start)):
            expected = f"each frame from 0 to {end - start - 1} once"
            raise DataError(f"{path}: not written by embodied-rm score, its episode {episode_index} has not {expected}")


def _check_shares(path: Path, table: pa.Table) -> None:
    """Raise `DataError` for a valid progress, or a success, outside [0, 1]; a model without success has nan there."""
    valid = table["valid"].to_numpy()
    for name in {"progress_dense", "success"}.intersection(table.column_names):
        values = table[name].to_numpy()
        wrong = valid & ~((values >= -ROUNDING) & (values <= 1 + ROUNDING))
        wrong &= ~np.isnan(values) if name == "success" else True
        if wrong.any():
            value = values[wrong.argmax()]
            raise DataError(f"{path}: not written by embodied-rm score, its {name} is {value:g}, outside [0, 1]")


def split_episodes(scores: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of each episode of a table in the order of the frames."""
    for _, start, end in equal_runs(scores["episode_index"].to_numpy()):
        yield scores.slice(start, end - start)


def to_reward_output(value: np.ndarray, success: np.ndarray, valid: np.ndarray) -> RewardOutput:
    """Build a `RewardOutput` from the columns of a table; missing fields get their neutral values."""
    return RewardOutput(
        progress=np.asarray(value, np.float32),
        valid=np.asarray(valid, bool),
        subtask=np.full(len(value), -1, np.int64),
        success=np.asarray(success, np.float32),
        uncertainty=np.zeros(len(value), np.float32),
    )
