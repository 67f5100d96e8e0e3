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

from embodied_rm.group import Group
from embodied_rm.labels.batches import Batch, Batches
from embodied_rm.labels.schemes import Term, chosen
from embodied_rm.logs import Log
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.learner import Learner
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.training_pass import Judge, Pictures, augmented, shared_passes
from embodied_rm.objective import every_term, summed
from embodied_rm.train.config import TrainConfig
from embodied_rm.types import IntArray
from embodied_rm.window import Window

WARM_UP = 0.05
"""Share of the schedule in which the learning rate rises."""


def learn(
    learner: Learner,
    judge: Judge,
    batches: Batches,
    config: TrainConfig,
    folder: Path,
    kept: Mapping[str, Any],
    log: Log,
    group: Group,
    window: Window | None,
) -> Iterator[int]:
    """Update until the schedule ends, saving the state in `folder` now and then, with the settings `kept`; yields each
    percent reached. Logs every update."""
    assert isinstance(learner.module, ProgressNet)
    schemes = chosen(config.labels)
    percent, saved, clock = 0, learner.seconds, time.perf_counter()
    while True:
        said = group.say([elapsed(learner, config), learner.seconds - saved > config.checkpoint_seconds])
        share, due = max(share for share, _ in said), said[0][1]  # by the first one's clock
        if share >= 1:
            return
        if due:
            learner.save(folder, kept, group)
            saved = learner.seconds
        lanes = window.lanes(learner.updates) if window else None
        mine = group.rows(group.share(config.batch, "batch"))
        batch, pictures = prepared(learner.module.encoder, batches, config, learner.updates, lanes, mine)
        passes = shared_passes(judge, batch, pictures, group, config.accumulate)
        draws = [config.seed, learner.updates, 1]
        told = (every_term(outputs, batch, schemes, np.random.default_rng(draws)) for outputs in passes)
        row: dict[str, Any] = {"learning_rate": config.learning_rate * schedule(share)}
        row["gradient"] = learner.update((noted(each, row) for each in told), row["learning_rate"], group)
        learner.seconds, clock = learner.seconds + time.perf_counter() - clock, time.perf_counter()
        log.write(learner.updates, {**row, "seconds": learner.seconds})
        for percent in range(percent + 1, int(100 * elapsed(learner, config)) + 1):  # noqa: B020
            yield percent


def noted(told: Mapping[str, Mapping[Term, Tensor]], row: dict[str, Any]) -> Tensor:
    """The objective from its terms, all of which the row is told. Every part of a batch sees all of it: the same."""
    total = summed(told)
    each = {name: {term: loss.item() for term, loss in terms.items()} for name, terms in told.items()}
    row["loss"] = {"total": total.item(), **each}
    return total


def prepared(
    encoder: Encoder,
    batches: Batches,
    config: TrainConfig,
    update: int,
    lanes: Sequence[IntArray] | None = None,
    shown: slice = slice(None),
) -> tuple[Batch, Pictures]:
    """What an update learns from, see `Batches.draw`. Drawn from a stream of its own: a run that goes on needs to
    know no more than how far it was. (To make it ready in a thread beside the update before gained nothing on two
    cores.)"""
    rng = np.random.default_rng([config.seed, update, 0])
    batch = batches.draw(config.batch, config.moments, rng, lanes, shown)
    generator = torch.Generator().manual_seed(int(rng.integers(2**63)))
    return batch, augmented(encoder, batch, config.augment, generator)


def elapsed(learner: Learner, config: TrainConfig) -> float:
    """Share of the schedule that is done: of the time budget where there is one, else of the updates."""
    if config.max_seconds is not None:
        return learner.seconds / config.max_seconds
    return learner.updates / config.updates


def schedule(share: float) -> float:
    """Share of the full learning rate at that share of the schedule: linear warm-up, then half a cosine to 0."""
    return min(1.0, (share + 1e-3) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))
