"""What a worker needs, and what it does with it: shard after shard, each on disk before the next is told of."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from embodied_rm.data.faults import Fault
from embodied_rm.data.film import count_blocks
from embodied_rm.data.identity import episodes_identity
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score.config import ScoreConfig
from embodied_rm.score.pictures import Pictures
from embodied_rm.score.scorer import Judged, Scorer, judged
from embodied_rm.score.shards import Shard, Told, store
from embodied_rm.score.table import episode_table, first_frames
from embodied_rm.types import IntArray


@dataclass(frozen=True, kw_only=True)
class Job:
    """A corpus and how it is scored. It goes to other processes, and with it whatever it holds."""

    opener: Callable[[], Scorer]
    """Opens the model: every worker does so itself."""
    source: EpisodeSource
    config: ScoreConfig
    run: Path
    """The run folder."""
    made_of: Mapping[str, str]
    """Whatever decides the scores beside the episodes, see `shards.Told`."""
    gpus: int = 0
    """GPUs that each actor of Ray is given."""

    @cached_property
    def firsts(self) -> IntArray:
        """See `first_frames`."""
        return first_frames(self.source.meta)

    def made(self, shard: Shard) -> dict[str, str]:
        """Whatever decides the scores of a shard."""
        return {**self.made_of, "data": episodes_identity(self.source, shard.rows)}


def work(job: Job, scorer: Scorer, shards: Iterable[Shard], reporter: Reporter) -> Iterator[Shard]:
    """Score the shards, which come as the decoder gets to them; each that is given out is stored."""
    known = [row for shard in shards for row in shard.rows] if isinstance(shards, Sequence) else None
    taken: deque[Shard] = deque()

    def rows() -> Iterator[int]:
        for shard in shards:
            taken.append(shard)
            yield from shard.rows

    blocks = None if known is None else count_blocks(job.source, known)
    held: list[Judged] = []
    for one in judged(scorer, job.source, rows(), job.config.every, reporter, blocks):
        held.append(one)
        if len(held) == len(taken[0].rows):
            finish(job, scorer, taken[0], held)
            held = []
            yield taken.popleft()


def finish(job: Job, scorer: Scorer, shard: Shard, episodes: Sequence[Judged]) -> None:
    """Leave what belongs to the episodes of a shard, then the shard."""
    scale, faults, tables = scorer.interval_scale, [], []
    lengths: list[int | None] = []
    pictures = Pictures(
        config=job.config, run=RunFolder(job.run), image_size=scorer.model.sight.image_size, interval_scale=scale
    )
    for one in episodes:
        meta, curve = job.source.meta[one.row], one.curve
        lengths.append(None if isinstance(curve, DataError) else len(curve))
        if isinstance(curve, DataError):
            faults.append(Fault.told_by(curve, (meta.name,)))
            continue
        tables.append(episode_table(one.row, curve, meta, int(job.firsts[one.row]), scale))
        faults += pictures.leave(job.source, one.row, curve)
    unscored = sum((one.unscored for one in episodes), Counter())
    told = Told(
        made_of=job.made(shard),
        lengths=tuple(lengths),
        faults=tuple(faults),
        unscored=unscored,
        interval_scale=scale,
    )
    store(shard.path(job.run), tables, told)
