"""Shards: scores of a few episodes in a file that is written atomically and records its inputs."""

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
from embodied_rm.data.issues import DataIssue
from embodied_rm.errors import DataError, UserError

SHARDS_DIR = "shards"
METADATA_KEY = b"embodied_rm"
"""Key of `ShardMetadata` in the metadata of the file, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Consecutive episodes that one worker scores."""

    number: int
    rows: tuple[int, ...]
    """Rows of the source, in the order of scoring."""

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

    input_digests: Mapping[str, str]
    """Input that affects the scores -> its name or digest."""
    lengths: tuple[int | None, ...]
    """Number of frames of each episode. None: left out."""
    issues: tuple[DataIssue, ...] = ()
    """Reasons of missing episodes and videos."""
    num_unscored: Mapping[str, int] = field(default_factory=Counter)
    """Number of unscored frames, by reason."""
    interval_scale: float | None = None
    """Interval scale of a calibrated model."""

    def to_json(self) -> str:
        """Return one line of JSON; equal metadata give equal text."""
        issues = [
            {"file": str(issue.file), "message": issue.message, "episodes": issue.episodes} for issue in self.issues
        ]
        return json.dumps({**vars(self), "issues": issues}, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes) -> ShardMetadata:
        """Return the metadata of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        issues = (
            DataIssue(file=Path(issue["file"]), message=issue["message"], episodes=tuple(issue["episodes"]))
            for issue in fields["issues"]
        )
        return cls(**{**fields, "issues": tuple(issues), "lengths": tuple(fields["lengths"])})


def write_shard(path: Path, tables: Sequence[pa.Table], metadata: ShardMetadata) -> None:
    """Write a shard and create its folder. `tables` are those of its scored episodes."""
    table = pa.concat_tables(tables) if tables else pa.table({})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: metadata.to_json().encode()}), buffer)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, buffer.getvalue())


def read_shard_metadata(path: Path) -> ShardMetadata:
    """Read the metadata of a shard without its scores."""
    try:
        return ShardMetadata.from_json(pq.read_schema(path).metadata[METADATA_KEY])
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a shard of scores ({error}); delete it to score it again") from None


def read_episode_tables(path: Path, lengths: Sequence[int | None]) -> Iterator[pa.Table | None]:
    """Iterate over the tables of a shard's episodes. None: left out."""
    table, start = pq.read_table(path).replace_schema_metadata(), 0
    for length in lengths:
        yield None if length is None else table.slice(start, length)
        start += length or 0


def check_same_inputs(path: Path, metadata: ShardMetadata, input_digests: Mapping[str, str]) -> None:
    """Raise `UserError` if an input of a shard differs from the expected one."""
    for name in sorted({*metadata.input_digests, *input_digests}):
        stored, expected = (digests.get(name, "none") for digests in (metadata.input_digests, input_digests))
        if stored != expected:
            raise UserError(
                f"{path}: was scored with other {name} ({stored[:12]}, now {expected[:12]}): use another out=, or "
                "delete it to score it again"
            )
