"""Scoring in this process. A thread decodes ahead, across episodes and shards."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.run_folder import Reporter
from embodied_rm.score.job import ScoreJob, score_shards
from embodied_rm.score.score_config import ScoreConfig
from embodied_rm.score.shards import Shard


def score_in_process(
    job: ScoreJob, shards: Iterable[Shard], reporter: Reporter, num_cpus: int | None = None
) -> Iterator[Shard]:
    """Score shards, and yield each after it is stored, in order.

    `num_cpus` are the processors of this worker. None: an equal share of this machine's processors.
    """
    scorer = job.scorer_factory()
    with torch_thread_count(
        num_torch_threads(scorer.model, job.config, num_cpus or max(1, num_available_cpus() // job.config.num_workers))
    ):
        yield from score_shards(job, scorer, shards, reporter)


def num_available_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def num_torch_threads(model: DescribedRewardModel, config: ScoreConfig, num_cpus: int) -> int:
    """Return the number of torch threads of a worker, see `ScoreConfig`."""
    return config.num_threads or (1 if isinstance(model, ProgressNet) else num_cpus)


@contextmanager
def torch_thread_count(count: int) -> Iterator[None]:
    """Set the number of torch threads in the context."""
    previous_count = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous_count)
