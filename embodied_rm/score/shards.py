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
from embodied_rm.data.faults import Fault
from embodied_rm.errors import DataError, UserError

FOLDER = "shards"
KEY = b"embodied_rm"
"""Under which the metadata of the file tells, as JSON, what is not in its table."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A run of episodes that is scored by one worker."""

    number: int
    rows: tuple[int, ...]
    """Of the source, in the order in which they are scored."""

    def path(self, run: Path) -> Path:
        """Its file in a run folder."""
        return run / FOLDER / f"{self.number:05d}.parquet"


def shards_of(rows: Sequence[int], size: int) -> tuple[Shard, ...]:
    """The rows, `size` to a shard and in their order."""
    cut = (tuple(rows[start : start + size]) for start in range(0, len(rows), size))
    return tuple(Shard(number=number, rows=some) for number, some in enumerate(cut))


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a shard's file tells beside the scores."""

    made_of: Mapping[str, str]
    """Whatever decides them -> what it is called or a digest of it."""
    lengths: tuple[int | None, ...]
    """Frames of each of its episodes; None: left out."""
    faults: tuple[Fault, ...] = ()
    """Why some are left out, or lack a video."""
    unscored: Mapping[str, int] = field(default_factory=Counter)
    """Frames that the judge left unscored, by why."""
    interval_scale: float | None = None
    """That of a calibrated model."""

    def as_json(self) -> str:
        """One line, the same for the same."""
        faults = [{"file": str(f.file), "what": f.what, "episodes": f.episodes} for f in self.faults]
        return json.dumps({**vars(self), "faults": faults}, sort_keys=True)

    @classmethod
    def from_json(cls, text: bytes) -> Told:
        """What `as_json` wrote."""
        told: dict[str, Any] = json.loads(text)
        faults = (Fault(file=Path(f["file"]), what=f["what"], episodes=tuple(f["episodes"])) for f in told["faults"])
        return cls(**{**told, "faults": tuple(faults), "lengths": tuple(told["lengths"])})


def store(path: Path, tables: Sequence[pa.Table], told: Told) -> None:
    """Write a shard, its folder too: `tables` are those of its episodes that were scored."""
    table = pa.concat_tables(tables) if tables else pa.table({})
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({KEY: told.as_json().encode()}), buffer)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, buffer.getvalue())


def read_told(path: Path) -> Told:
    """What a shard tells, its scores not read. Raises `DataError` for what is none."""
    try:
        return Told.from_json(pq.read_schema(path).metadata[KEY])
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as fault:
        raise DataError(f"{path}: not a shard of scores ({fault}); delete it, and it is scored anew") from None


def episodes_in(path: Path, lengths: Sequence[int | None]) -> Iterator[pa.Table | None]:
    """The tables of a shard's episodes; None: left out."""
    table, start = pq.read_table(path).replace_schema_metadata(), 0
    for length in lengths:
        yield None if length is None else table.slice(start, length)
        start += length or 0


def refuse_other(path: Path, told: Told, made_of: Mapping[str, str]) -> None:
    """Raises `UserError` naming the shard and what differs, unless it was made of the very same."""
    for what in sorted({*told.made_of, *made_of}):
        before, now = (some.get(what, "none") for some in (told.made_of, made_of))
        if before != now:
            raise UserError(
                f"{path}: was scored with other {what} ({before[:12]}, now {now[:12]}): take another out=, or delete "
                "it and it is scored anew"
            )
