"""The updates of a training run, one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.distributed import DistContext
from embodied_rm.labels.schemes import LossTerm, select_schemes
from embodied_rm.logs import MetricsLogger
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.train.batches import LabeledBatch, LabeledBatchSampler
from embodied_rm.train.forward import ForwardFn, TrainingImages, augment_batch, microbatch_forwards
from embodied_rm.train.objective import all_loss_terms, sum_loss_terms
from embodied_rm.train.streaming import StreamingEpisodes
from embodied_rm.train.train_config import TrainConfig
from embodied_rm.train.train_state import TrainState
from embodied_rm.types import IntArray

WARMUP_FRACTION = 0.05
"""Share of the schedule in which the learning rate rises."""


def train_loop(
    train_state: TrainState,
    forward: ForwardFn,
    batch_sampler: LabeledBatchSampler,
    config: TrainConfig,
    folder: Path,
    resume_settings: Mapping[str, Any],
    log: MetricsLogger,
    group: DistContext,
    stream: StreamingEpisodes | None,
) -> Iterator[int]:
    """Update until the schedule ends, saving the state in `folder` now and then, with the settings `kept`; yields each
    percent reached. Logs every update."""
    assert isinstance(train_state.module, ProgressNet)
    schemes = select_schemes(config.label_schemes)
    percent, last_save_s, last_tick_s = 0, train_state.elapsed_s, time.perf_counter()
    while True:
        statuses = group.all_gather_object(
            [elapsed_fraction(train_state, config), train_state.elapsed_s - last_save_s > config.checkpoint_seconds]
        )
        fraction, save_due = max(fraction for fraction, _ in statuses), statuses[0][1]  # by the first one's clock
        if fraction >= 1:
            return
        if save_due:
            train_state.save(folder, resume_settings, group)
            last_save_s = train_state.elapsed_s
        rank_pools = stream.rank_pools(train_state.steps) if stream else None
        local_rows = group.local_rows(group.local_count(config.batch_size, "batch"))
        batch, images = prepare_batch(
            train_state.module.encoder, batch_sampler, config, train_state.steps, rank_pools, local_rows
        )
        part_outputs = microbatch_forwards(forward, batch, images, group, config.gradient_accumulation_steps)
        rng_key = [config.seed, train_state.steps, 1]
        part_terms = (
            all_loss_terms(outputs, batch, schemes, np.random.default_rng(rng_key)) for outputs in part_outputs
        )
        metrics: dict[str, Any] = {"learning_rate": config.learning_rate * learning_rate_factor(fraction)}
        metrics["gradient"] = train_state.update(
            (record_loss_terms(terms_by_scheme, metrics) for terms_by_scheme in part_terms),
            metrics["learning_rate"],
            group,
        )
        train_state.elapsed_s, last_tick_s = (
            train_state.elapsed_s + time.perf_counter() - last_tick_s,
            time.perf_counter(),
        )
        log.write(train_state.steps, {**metrics, "seconds": train_state.elapsed_s})
        for percent in range(percent + 1, int(100 * elapsed_fraction(train_state, config)) + 1):  # noqa: B020
            yield percent


def record_loss_terms(terms_by_scheme: Mapping[str, Mapping[LossTerm, Tensor]], metrics: dict[str, Any]) -> Tensor:
    """The objective from its terms, all of which the row is told. Every part of a batch sees all of it: the same."""
    total = sum_loss_terms(terms_by_scheme)
    loss_values = {name: {term: loss.item() for term, loss in terms.items()} for name, terms in terms_by_scheme.items()}
    metrics["loss"] = {"total": total.item(), **loss_values}
    return total


def prepare_batch(
    encoder: Encoder,
    batch_sampler: LabeledBatchSampler,
    config: TrainConfig,
    step: int,
    rank_pools: Sequence[IntArray] | None = None,
    visible_rows: slice = slice(None),
) -> tuple[LabeledBatch, TrainingImages]:
    """What an update learns from, see `Batches.draw`. Drawn from a stream of its own: a run that goes on needs to
    know no more than how far it was. (To make it ready in a thread beside the update before gained nothing on two
    cores.)"""
    rng = np.random.default_rng([config.seed, step, 0])
    batch = batch_sampler.sample(config.batch_size, config.frames_per_episode, rng, rank_pools, visible_rows)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    return batch, augment_batch(encoder, batch, config.augment, generator)


def elapsed_fraction(train_state: TrainState, config: TrainConfig) -> float:
    """Share of the schedule that is done: of the time budget where there is one, else of the updates."""
    if config.max_seconds is not None:
        return train_state.elapsed_s / config.max_seconds
    return train_state.steps / config.steps


def learning_rate_factor(fraction: float) -> float:
    """Share of the full learning rate at that share of the schedule: linear warm-up, then half a cosine to 0."""
    return min(1.0, (fraction + 1e-3) / WARMUP_FRACTION) * 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0)))
