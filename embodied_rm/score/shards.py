"""Shards: a few episodes' scores in a file that is whole or not there, and that says what it was made of."""

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
"""Under which the metadata of the file tells, as JSON, what is not in its table."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A run of episodes that is scored by one worker."""

    number: int
    rows: tuple[int, ...]
    """Of the source, in the order in which they are scored."""

    def path(self, run_dir: Path) -> Path:
        """Its file in a run folder."""
        return run_dir / SHARDS_DIR / f"{self.number:05d}.parquet"


def make_shards(rows: Sequence[int], size: int) -> tuple[Shard, ...]:
    """The rows, `size` to a shard and in their order."""
    row_groups = (tuple(rows[start : start + size]) for start in range(0, len(rows), size))
    return tuple(Shard(number=number, rows=shard_rows) for number, shard_rows in enumerate(row_groups))


@dataclass(frozen=True, kw_only=True)
class ShardMetadata:
    """What a shard's file tells beside the scores."""

    input_digests: Mapping[str, str]
    """Whatever decides them -> what it is called or a digest of it."""
    lengths: tuple[int | None, ...]
    """Frames of each of its episodes; None: left out."""
    issues: tuple[DataIssue, ...] = ()
    """Why some are left out, or lack a video."""
    num_unscored: Mapping[str, int] = field(default_factory=Counter)
    """Frames that the judge left unscored, by why."""
    interval_scale: float | None = None
    """That of a calibrated model."""

    def to_json(self) -> str:
        """One line, the same for the same."""
        issues = [{"file": str(issue.file), "message": issue.message, "episodes": issue.episodes} for issue in self.issues]
        return json.dumps({**vars(self), "issues": issues}, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes) -> ShardMetadata:
        """What `as_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        issues = (
            DataIssue(file=Path(issue["file"]), message=issue["message"], episodes=tuple(issue["episodes"]))
            for issue in fields["issues"]
        )
        return cls(**{**fields, "issues": tuple(issues), "lengths": tuple(fields["lengths"])})


def write_shard(path: Path, tables: Sequence[pa.Table], metadata: ShardMetadata) -> None:
    """Write a shard, its folder too: `tables` are those of its episodes that were scored."""
    table = pa.concat_tables(tables) if tables else pa.table({})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: metadata.to_json().encode()}), buffer)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, buffer.getvalue())


def read_shard_metadata(path: Path) -> ShardMetadata:
    """What a shard tells, its scores not read. Raises `DataError` for what is none."""
    try:
        return ShardMetadata.from_json(pq.read_schema(path).metadata[METADATA_KEY])
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a shard of scores ({error}); delete it, and it is scored anew") from None


def read_episode_tables(path: Path, lengths: Sequence[int | None]) -> Iterator[pa.Table | None]:
    """The tables of a shard's episodes; None: left out."""
    table, start = pq.read_table(path).replace_schema_metadata(), 0
    for length in lengths:
        yield None if length is None else table.slice(start, length)
        start += length or 0


def check_same_inputs(path: Path, metadata: ShardMetadata, input_digests: Mapping[str, str]) -> None:
    """Raises `UserError` naming the shard and what differs, unless it was made of the very same."""
    for name in sorted({*metadata.input_digests, *input_digests}):
        stored, expected = (digests.get(name, "none") for digests in (metadata.input_digests, input_digests))
        if stored != expected:
            raise UserError(
                f"{path}: was scored with other {name} ({stored[:12]}, now {expected[:12]}): take another out=, or delete "
                "it and it is scored anew"
            )
