"""Shards: scores of a few episodes in a file that is written atomically and records its inputs.

The results of scoring are read from the shards on demand.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from embodied_rm.atomic_file import write_atomic
from embodied_rm.data.dataset_files import check_utf8
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.lerobot.parquet import read_footer, read_parquet
from embodied_rm.errors import DataError, UserError
from embodied_rm.score.write_scores import prediction_from_table
from embodied_rm.types import RewardOutput

SHARDS_DIR = "shards"
METADATA_KEY = b"embodied_rm"  # key of `ShardMetadata` in the metadata of the file, as JSON


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Consecutive episodes that one worker scores."""

    number: int
    rows: tuple[int, ...]  # rows of the source, in the order of scoring

    def path(self, run_dir: Path) -> Path:
        """Return its file in a run folder."""
        return run_dir / SHARDS_DIR / f"{self.number:05d}.parquet"


def make_shards(rows: Sequence[int], size: int) -> tuple[Shard, ...]:
    """Split the rows into shards of `size`, in order."""
    row_groups = (tuple(rows[start : start + size]) for start in range(0, len(rows), size))
    return tuple(Shard(number=number, rows=shard_rows) for number, shard_rows in enumerate(row_groups))


@dataclass(frozen=True, kw_only=True)
class ShardMetadata:
    """Metadata in the file of a shard."""

    input_digests: Mapping[str, str]  # input that affects the scores -> its name or digest
    lengths: tuple[int | None, ...]  # Number of frames of each episode. None: left out.
    issues: tuple[DataIssue, ...] = ()  # reasons of missing episodes and videos
    num_unscored: Mapping[str, int] = field(default_factory=Counter)  # number of unscored frames, by reason
    interval_scale: float | None = None  # interval scale of a calibrated model

    def to_json(self) -> str:
        """Return one line of JSON; equal metadata give equal text."""
        issues = [{**vars(issue), "file": str(issue.file)} for issue in self.issues]
        return json.dumps({**vars(self), "issues": issues}, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes) -> ShardMetadata:
        """Return the metadata of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        issues = tuple(
            DataIssue(**{**issue, "file": Path(issue["file"]), "episodes": tuple(issue["episodes"])})
            for issue in fields["issues"]
        )
        return cls(**{**fields, "issues": issues, "lengths": tuple(fields["lengths"])})


def write_shard(path: Path, tables: Sequence[pa.Table], metadata: ShardMetadata) -> None:
    """Write a shard and create its folder. `tables` are those of its scored episodes."""
    check_utf8(path)
    table = pa.concat_tables(tables) if tables else pa.table({})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: metadata.to_json().encode()}), buffer)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, buffer.getvalue())


def read_shard_metadata(path: Path) -> ShardMetadata:
    """Read the metadata of a shard without its scores."""
    try:
        return ShardMetadata.from_json((read_footer(path).metadata or {})[METADATA_KEY])
    except (DataError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a shard of scores ({error}); delete it to score it again") from None


def read_episode_tables(path: Path, lengths: Sequence[int | None]) -> Iterator[pa.Table | None]:
    """Iterate over the tables of a shard's episodes. None: left out."""
    table, start = read_parquet(path).replace_schema_metadata(), 0
    for length in lengths:
        yield None if length is None else table.slice(start, length)
        start += length or 0


def check_same_inputs(path: Path, metadata: ShardMetadata, input_digests: Mapping[str, str]) -> None:
    """Raise `UserError` if an input of a shard differs from the expected one."""
    for name in sorted({*metadata.input_digests, *input_digests}):
        stored, expected = (digests.get(name, "none") for digests in (metadata.input_digests, input_digests))
        if stored != expected:
            digests = f"{stored[:12]}, now {expected[:12]}"
            hint = "use another out=, or delete it to score it again"
            raise UserError(f"{path}: was scored with other {name} ({digests}): {hint}")


@dataclass(frozen=True, kw_only=True)
class CorpusScores:
    """Scores of a corpus, its issues and its unscored frames."""

    predictions: ShardedPredictions  # row of the source -> prediction of its frames, in the requested order
    issues: tuple[DataIssue, ...]  # reasons of missing episodes and videos
    num_unscored: Counter[str]  # number of unscored frames, by reason
    interval_scale: float | None  # interval scale of a calibrated model

    @classmethod
    def from_shards(cls, run_dir: Path, shards: Sequence[Shard], metadata: Sequence[ShardMetadata]) -> CorpusScores:
        """Return the results in complete shards and their metadata."""
        return cls(
            predictions=ShardedPredictions(run_dir, shards, metadata),
            issues=tuple(issue for part in metadata for issue in part.issues),
            num_unscored=sum((Counter(part.num_unscored) for part in metadata), Counter()),
            interval_scale=metadata[0].interval_scale,
        )


class ShardedPredictions(Mapping[int, RewardOutput]):
    """Row -> prediction. One shard at a time is in memory."""

    def __init__(self, run_dir: Path, shards: Sequence[Shard], metadata: Sequence[ShardMetadata]) -> None:
        self._run_dir = run_dir
        self._lengths = {shard.number: part.lengths for shard, part in zip(shards, metadata, strict=True)}
        rows = ((shard, zip(shard.rows, self._lengths[shard.number], strict=True)) for shard in shards)
        self._shards = {row: shard for shard, lengths in rows for row, length in lengths if length is not None}
        self._cached: tuple[int, Mapping[int, pa.Table]] = (-1, {})

    def table(self, row: int) -> pa.Table:
        """Return the table of one episode."""
        shard = self._shards[row]
        if self._cached[0] != shard.number:
            tables = read_episode_tables(shard.path(self._run_dir), self._lengths[shard.number])
            self._cached = shard.number, dict(zip(shard.rows, tables, strict=True))
        return self._cached[1][row]

    def __getitem__(self, row: int) -> RewardOutput:
        return prediction_from_table(self.table(row))

    def __iter__(self) -> Iterator[int]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)
