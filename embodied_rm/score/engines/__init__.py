"""Engines: this process, several processes, or Ray actors. All write the same shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embodied_rm.run_folder import Reporter
from embodied_rm.score.engines.in_process import score_in_process
from embodied_rm.score.engines.processes import score_in_processes
from embodied_rm.score.engines.ray_actors import score_with_ray
from embodied_rm.score.job import ScoreJob
from embodied_rm.score.score_config import RAY_ENGINE
from embodied_rm.score.shards import Shard


def run_engine(job: ScoreJob, shards: Sequence[Shard], reporter: Reporter) -> Iterator[Shard]:
    """Score shards with the configured engine, and yield each after it is stored, in any order."""
    if job.config.engine == RAY_ENGINE:
        return reporter.track(score_with_ray(job, shards), "score shards", len(shards))
    if job.config.num_workers > 1:
        return reporter.track(score_in_processes(job, shards), "score shards", len(shards))
    return score_in_process(job, shards, reporter)
