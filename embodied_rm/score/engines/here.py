"""Scoring in this process: a thread decodes ahead, across the borders of episodes and shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from embodied_rm.models.base import Judge
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run import Reporter
from embodied_rm.score.config import ScoreConfig
from embodied_rm.score.job import Job, work
from embodied_rm.score.shards import Shard


def score_here(job: Job, shards: Iterable[Shard], reporter: Reporter, share: int | None = None) -> Iterator[Shard]:
    """The shards as they are stored, in their order. `share`: processors for this worker; None: of this machine's as
    many as for every other."""
    scorer = job.opener()
    with torch_threads(threads_of(scorer.model, job.config, share or max(1, cores() // job.config.workers))):
        yield from work(job, scorer, shards, reporter)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def threads_of(model: Judge, config: ScoreConfig, share: int) -> int:
    """How many threads of torch a worker has, see `ScoreConfig`."""
    return config.threads or (1 if isinstance(model, ProgressNet) else share)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads of torch inside, as many as before behind."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
