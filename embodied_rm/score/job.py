"""The work of a scoring worker: it scores shard after shard and stores each before it reports it."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from embodied_rm.atomic_file import write_atomic
from embodied_rm.data.block_reader import count_blocks
from embodied_rm.data.dataset_hash import hash_episodes
from embodied_rm.data.issues import DataIssue
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score.score_config import ScoreConfig
from embodied_rm.score.scorer import ScoredEpisode, Scorer, score_rows
from embodied_rm.score.shards import Shard, ShardMetadata, write_shard
from embodied_rm.score.visualize import plot_episode, write_episode_video
from embodied_rm.score.write_scores import episode_table, first_frame_indices
from embodied_rm.threads import count_cores, torch_threads
from embodied_rm.types import IntArray


@dataclass(frozen=True, kw_only=True)
class ScoreJob:
    """A corpus and the settings of its scoring. It is pickled for other processes."""

    scorer_factory: Callable[[], Scorer]  # loads the model; called by every worker
    source: EpisodeSource
    config: ScoreConfig
    run_dir: Path
    input_digests: Mapping[str, str]
    """Digests of everything but the episodes that affects the scores, see `ShardMetadata`."""
    num_gpus: int = 0  # GPUs per Ray actor

    @cached_property
    def first_frames(self) -> IntArray:
        """See `first_frame_indices`."""
        return first_frame_indices(self.source.meta)

    def shard_digests(self, shard: Shard) -> dict[str, str]:
        """Return the digests of everything that affects the scores of a shard."""
        return {**self.input_digests, "data": hash_episodes(self.source, shard.rows)}


def score_in_process(
    job: ScoreJob, shards: Iterable[Shard], reporter: Reporter, num_cpus: int | None = None
) -> Iterator[Shard]:
    """Score shards, and yield each after it is stored, in order.

    `num_cpus` are the processors of this worker. None: an equal share of this machine's processors.
    """
    scorer = job.scorer_factory()
    num_cpus = num_cpus or max(1, count_cores() // job.config.num_workers)
    with torch_threads(num_torch_threads(scorer.model, job.config, num_cpus)):
        yield from score_shards(job, scorer, shards, reporter)


def num_torch_threads(model: DescribedRewardModel, config: ScoreConfig, num_cpus: int) -> int:
    """Return the number of torch threads of a worker, see `ScoreConfig`."""
    return config.num_threads or (1 if isinstance(model, ProgressNet) else num_cpus)


def score_shards(job: ScoreJob, scorer: Scorer, shards: Iterable[Shard], reporter: Reporter) -> Iterator[Shard]:
    """Score shards, and yield each after it is stored.

    `shards` may be a generator, which is advanced when the decoder needs the next shard.
    """
    all_rows = [row for shard in shards for row in shard.rows] if isinstance(shards, Sequence) else None
    open_shards: deque[Shard] = deque()

    def rows() -> Iterator[int]:
        for shard in shards:
            open_shards.append(shard)
            yield from shard.rows

    num_blocks = None if all_rows is None else count_blocks(job.source, all_rows)
    scored: list[ScoredEpisode] = []
    for episode in score_rows(scorer, job.source, rows(), job.config.frame_stride, reporter, num_blocks):
        scored.append(episode)
        if len(scored) == len(open_shards[0].rows):
            write_shard_outputs(job, scorer, open_shards[0], scored)
            scored = []
            yield open_shards.popleft()


def write_shard_outputs(job: ScoreJob, scorer: Scorer, shard: Shard, episodes: Sequence[ScoredEpisode]) -> None:
    """Write the plots and videos of the episodes of a shard, then the shard."""
    interval_scale, image_size = scorer.model.capabilities.interval_scale, scorer.model.input_spec.image_size
    issues: list[DataIssue] = []
    tables: list[pa.Table] = []
    lengths: list[int | None] = []
    run = RunFolder(job.run_dir)
    for episode in episodes:
        meta, prediction = job.source.meta[episode.row], episode.prediction
        lengths.append(None if isinstance(prediction, DataError) else len(prediction))
        if isinstance(prediction, DataError):
            issues.append(DataIssue.from_error(prediction, (meta.name,)))
            continue
        tables.append(episode_table(episode.row, prediction, meta, int(job.first_frames[episode.row]), interval_scale))
        if job.config.plots:
            plot = plot_episode(meta, job.source.frame_rate(episode.row), prediction, interval_scale)
            write_atomic(run.episode_path(meta.name, ".png"), plot)
        if job.config.videos:
            try:
                video_path = run.episode_path(meta.name, ".mp4")
                write_episode_video(video_path, job.source, episode.row, prediction, image_size, job.config)
            except DataError as error:
                issues.append(DataIssue.from_error(error, ()))
    metadata = ShardMetadata(
        input_digests=job.shard_digests(shard),
        lengths=tuple(lengths),
        issues=tuple(issues),
        num_unscored=sum((episode.num_unscored for episode in episodes), Counter()),
        interval_scale=interval_scale,
    )
    write_shard(shard.path(job.run_dir), tables, metadata)
