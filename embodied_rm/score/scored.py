"""What came out of scoring, read from the shards when it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from embodied_rm.data.faults import Fault
from embodied_rm.score.shards import Shard, Told, episodes_in
from embodied_rm.score.table import curve_of
from embodied_rm.types import Progress


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The scores of a corpus and what is missing from them."""

    curves: Curves
    """Row of the source -> judgement of its frames, in the order in which they were asked for."""
    faults: tuple[Fault, ...]
    """Why episodes were left out, or lack a video."""
    unscored: Counter[str]
    """Frames that the judge left unscored, by why."""
    interval_scale: float | None
    """That of a calibrated model."""

    @classmethod
    def of(cls, run: Path, shards: Sequence[Shard], told: Sequence[Told]) -> Scored:
        """`told`: what the shards tell, all of which are there."""
        return cls(
            curves=Curves(run, shards, told),
            faults=tuple(fault for one in told for fault in one.faults),
            unscored=sum((Counter(one.unscored) for one in told), Counter()),
            interval_scale=told[0].interval_scale,
        )


class Curves(Mapping[int, Progress]):
    """Row -> judgement. One shard at a time is held."""

    def __init__(self, run: Path, shards: Sequence[Shard], told: Sequence[Told]) -> None:
        self._run = run
        self._lengths = {shard.number: one.lengths for shard, one in zip(shards, told, strict=True)}
        self._shards = {
            row: shard
            for shard in shards
            for row, length in zip(shard.rows, self._lengths[shard.number], strict=True)
            if length is not None
        }
        self._held: tuple[int, Mapping[int, pa.Table]] = (-1, {})

    def table(self, row: int) -> pa.Table:
        """The rows of the table of one episode."""
        shard = self._shards[row]
        if self._held[0] != shard.number:
            tables = episodes_in(shard.path(self._run), self._lengths[shard.number])
            self._held = shard.number, dict(zip(shard.rows, tables, strict=True))
        return self._held[1][row]

    def __getitem__(self, row: int) -> Progress:
        return curve_of(self.table(row))

    def __iter__(self) -> Iterator[int]:
        return iter(self._shards)

    def __len__(self) -> int:
        return len(self._shards)
