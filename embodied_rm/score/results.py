"""Results of scoring, read from the shards on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from embodied_rm.data.issues import DataIssue
from embodied_rm.score.shards import Shard, ShardMetadata, read_episode_tables
from embodied_rm.score.write_scores import prediction_from_table
from embodied_rm.types import RewardOutput


@dataclass(frozen=True, kw_only=True)
class CorpusScores:
    """Scores of a corpus, its issues and its unscored frames."""

    predictions: ShardedPredictions
    """Row of the source -> prediction of its frames, in the requested order."""
    issues: tuple[DataIssue, ...]
    """Reasons of missing episodes and videos."""
    num_unscored: Counter[str]
    """Number of unscored frames, by reason."""
    interval_scale: float | None
    """Interval scale of a calibrated model."""

    @classmethod
    def from_shards(cls, run_dir: Path, shards: Sequence[Shard], metadata: Sequence[ShardMetadata]) -> CorpusScores:
        """Return the results in complete shards and their metadata."""
        return cls(
            predictions=ShardedPredictions(run_dir, shards, metadata),
            issues=tuple(issue for shard_metadata in metadata for issue in shard_metadata.issues),
            num_unscored=sum((Counter(shard_metadata.num_unscored) for shard_metadata in metadata), Counter()),
            interval_scale=metadata[0].interval_scale,
        )


class ShardedPredictions(Mapping[int, RewardOutput]):
    """Row -> prediction. One shard at a time is in memory."""

    def __init__(self, run_dir: Path, shards: Sequence[Shard], metadata: Sequence[ShardMetadata]) -> None:
        self._run_dir = run_dir
        self._lengths = {
            shard.number: shard_metadata.lengths for shard, shard_metadata in zip(shards, metadata, strict=True)
        }
        self._shards = {
            row: shard
            for shard in shards
            for row, length in zip(shard.rows, self._lengths[shard.number], strict=True)
            if length is not None
        }
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
