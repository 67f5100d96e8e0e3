"""What a judge said of a dataset, as `embodied-rm score` leaves it, beside the episodes that it said it of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embodied_rm.data.stride import kept_frames
from embodied_rm.errors import DataError
from embodied_rm.types import BoolArray, Episode, Progress

TABLE, CONFIG = "progress.parquet", "config.json"
COLUMNS = {"value": "progress_dense", "success": "success", "valid": "valid"}


@dataclass(frozen=True, kw_only=True)
class Judgements:
    """The table of one run of scoring."""

    path: Path
    tables: Mapping[int, pa.Table]
    """Number of an episode in its dataset -> its rows."""
    every: int
    """Every how many frames were scored, and the last."""

    @classmethod
    def read(cls, run: Path) -> Judgements:
        """Those in a run folder. Raises `DataError` naming the file and its fault."""
        path = run / TABLE
        try:
            table = pq.read_table(path, columns=["episode_index", "frame_index", *COLUMNS.values()])
            every = int(json.loads((run / CONFIG).read_text())["config"]["every"])
        except (OSError, pa.ArrowInvalid, ValueError, KeyError, TypeError) as fault:
            raise DataError(f"{path}: not the scores that embodied-rm score leaves ({fault})") from None
        numbers = pc.unique(table["episode_index"]).to_pylist()
        tables = {number: table.filter(pc.equal(table["episode_index"], number)) for number in numbers}
        return cls(path=path, tables=tables, every=every)

    def beside(self, episode: Episode, number: int, length: int, stride: int) -> Episode:
        """The episode, every `stride`-th of whose `length` frames was read, with what was said of it.

        Raises `DataError` when it was not scored, or a film of another length was.
        """
        table = self.tables.get(number)
        if table is None or len(table) != length:
            seen = "none" if table is None else str(len(table))
            raise DataError(
                f"{self.path}: {episode.name} has {length} frames, {seen} of them scored: score this very data"
            )
        kept = kept_frames(length, stride)
        value, success, valid = (table[column].to_numpy(zero_copy_only=False)[kept] for column in COLUMNS.values())
        return replace(episode, judged=judgement(value, success, valid & self._asked(length)[kept]))

    def _asked(self, length: int) -> BoolArray:
        """The frames that were scored, bool [length]: between two of them the former one's score is carried."""
        asked = np.zeros(length, bool)
        asked[kept_frames(length, self.every)] = True
        return asked


def judgement(value: np.ndarray, success: np.ndarray, valid: np.ndarray) -> Progress:
    """What is known of a judge's opinion from a table."""
    nothing = np.zeros(len(value), np.float32)
    return Progress(
        value=np.asarray(value, np.float32),
        valid=np.asarray(valid, bool),
        stage=np.full(len(value), -1, np.int64),
        success=np.asarray(success, np.float32),
        spread=nothing,
    )
