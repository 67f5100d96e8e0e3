"""Who does the work: this process, processes beside it, or actors of Ray. All leave the same shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from embodied_rm.run import Reporter
from embodied_rm.score.config import RAY
from embodied_rm.score.engines.here import score_here
from embodied_rm.score.engines.on_ray import score_on_ray
from embodied_rm.score.engines.processes import score_in_processes
from embodied_rm.score.job import Job
from embodied_rm.score.shards import Shard


def finished(job: Job, shards: Sequence[Shard], reporter: Reporter) -> Iterator[Shard]:
    """The shards as they are stored, in any order."""
    if job.config.engine == RAY:
        return reporter.track(score_on_ray(job, shards), "score shards", len(shards))
    if job.config.workers > 1:
        return reporter.track(score_in_processes(job, shards), "score shards", len(shards))
    return score_here(job, shards, reporter)
