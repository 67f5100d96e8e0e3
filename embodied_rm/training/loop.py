"""Training loop."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.distributed import DistContext
from embodied_rm.labels.schemes import LossTerm, select_schemes
from embodied_rm.logs import MetricsLogger
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.training.batches import LabeledBatch, LabeledBatchSampler
from embodied_rm.training.forward import ForwardFn, TrainingImages, augment_batch, microbatch_forwards
from embodied_rm.training.missing_evidence import cover_halves, discount_success
from embodied_rm.training.objective import all_loss_terms, sum_loss_terms
from embodied_rm.training.streaming import StreamingEpisodes
from embodied_rm.training.train_config import TrainConfig
from embodied_rm.training.train_state import TrainState
from embodied_rm.types import IntArray

WARMUP_FRACTION = 0.05  # fraction of the schedule with a rising learning rate


def train_loop(
    train_state: TrainState,
    forward: ForwardFn,
    batch_sampler: LabeledBatchSampler,
    config: TrainConfig,
    save: Callable[[], None],
    log: MetricsLogger,
    group: DistContext,
    stream: StreamingEpisodes | None,
) -> Iterator[int]:
    """Train until the schedule or the patience ends; log every step and evaluation.

    Yields each percent of the schedule that is reached. `save` is called every `config.checkpoint_seconds`. `stream`
    loads the episodes, if they are not all in memory. The evaluations count as training time, so that `max_seconds`
    stays a limit.
    """
    assert isinstance(train_state.module, ProgressNet)
    schemes = select_schemes(config.label_schemes)
    percent = elapsed_percent(train_state, config)
    yield from range(1, percent + 1)
    last_save_s = train_state.elapsed_s
    last_tick_s = time.perf_counter()
    while True:
        due = train_state.elapsed_s - last_save_s > config.checkpoint_seconds
        statuses = group.all_gather_object([elapsed_fraction(train_state, config), due])
        fraction, save_due = max(fraction for fraction, _ in statuses), statuses[0][1]  # by the clock of rank 0
        held_out = train_state.held_out
        if held_out is not None and held_out.is_due(fraction):
            log.write(train_state.steps, {"held_out": held_out.evaluate(train_state.steps, fraction, group)})
        if fraction >= 1 or (held_out is not None and held_out.is_exhausted):
            return
        if save_due:
            save()
            last_save_s = train_state.elapsed_s
        rank_pools = stream.rank_pools(train_state.steps) if stream else None
        local_rows = group.local_rows(group.local_count(config.batch_size, "batch_size"))
        encoder, step = train_state.module.encoder, train_state.steps
        batch, images = prepare_batch(encoder, batch_sampler, config, step, rank_pools, local_rows)
        outputs = microbatch_forwards(forward, batch, images, group, config.gradient_accumulation_steps)
        rng_key = [config.seed, step, 1]
        part_terms = (all_loss_terms(part, batch, schemes, np.random.default_rng(rng_key)) for part in outputs)
        metrics: dict[str, Any] = {"learning_rate": config.learning_rate * learning_rate_factor(fraction)}
        losses = (record_loss_terms(terms_by_scheme, metrics) for terms_by_scheme in part_terms)
        metrics["grad_norm"] = train_state.update(losses, metrics["learning_rate"], group)
        now_s = time.perf_counter()
        train_state.elapsed_s += now_s - last_tick_s
        last_tick_s = now_s
        log.write(train_state.steps, {**metrics, "seconds": train_state.elapsed_s})
        for percent in range(percent + 1, elapsed_percent(train_state, config) + 1):  # noqa: B020
            yield percent


def record_loss_terms(terms_by_scheme: Mapping[str, Mapping[LossTerm, Tensor]], metrics: dict[str, Any]) -> Tensor:
    """Sum the loss terms and record them in `metrics`. Every microbatch has the terms of the whole batch."""
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
    """Sample and augment the batch of a step, see `LabeledBatchSampler.sample`.

    The random stream depends on seed and step only, so a resumed run needs no generator state.
    """
    rng = np.random.default_rng([config.seed, step, 0])
    batch = batch_sampler.sample(config.batch_size, config.frames_per_episode, rng, rank_pools, visible_rows)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    batch = cover_halves(batch, config.augment, generator)
    images = augment_batch(encoder, batch, config.augment, generator)
    return discount_success(batch, images.visible.numpy(), rng), images


def elapsed_fraction(train_state: TrainState, config: TrainConfig) -> float:
    """Return the elapsed fraction of the schedule: of the time budget if there is one, else of the steps."""
    if config.max_seconds is not None:
        return train_state.elapsed_s / config.max_seconds
    return train_state.steps / config.steps


def elapsed_percent(train_state: TrainState, config: TrainConfig) -> int:
    """Return how many whole percents of the schedule have elapsed, at most 100: a step may exceed a time budget."""
    return min(100, int(100 * elapsed_fraction(train_state, config)))


def learning_rate_factor(fraction: float) -> float:
    """Return the learning rate factor at a fraction of the schedule: linear warm-up, then cosine decay to 0."""
    return min(1.0, (fraction + 1e-3) / WARMUP_FRACTION) * 0.5 * (1 + math.cos(math.pi * min(fraction, 1.0)))
