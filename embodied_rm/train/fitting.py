"""Fit a net to episodes: one that is new, or one that learns on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial

import torch

from embodied_rm.errors import UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.labels.batches import Batches
from embodied_rm.labels.labelled import label
from embodied_rm.labels.schemes import Labeller, Scheme, chosen
from embodied_rm.logs import open_log
from embodied_rm.models import low_rank
from embodied_rm.models.encoders import sized
from embodied_rm.models.labellers import by_features, by_judge
from embodied_rm.models.learner import Learner
from embodied_rm.models.map_cache import MapCache
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.sharding import sharded
from embodied_rm.models.tokens import known_words
from embodied_rm.models.training_pass import Judge, training_pass
from embodied_rm.objective import WEIGHTS
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.train.config import TrainConfig, settings
from embodied_rm.train.refusals import need_perspectives, refuse_looks, refuse_several_wishes
from embodied_rm.train.updates import learn
from embodied_rm.types import Episode
from embodied_rm.window import Window

UNFINISHED = "unfinished"
"""Folder of the training state inside the run folder, while training is under way."""


def new_net(episodes: Sequence[Episode], config: TrainConfig) -> ProgressNet:
    """A net with random weights (or a pretrained tower) for the views and the most steps that the episodes have."""
    torch.manual_seed(config.seed)
    encoder = make_encoder(config.tower, config.image_size, trained=config.train_tower, text_tower=config.text_tower)
    views = tuple(dict.fromkeys(name for episode in episodes for name in episode.views))
    steps = max((len({step.name for step in episode.steps}) for episode in episodes), default=0)
    net_config = NetConfig(views=views, encoder=encoder.config, max_steps=max(steps, 1), fusion=config.fusion)
    return ProgressNet(net_config, encoder)


def fit(
    net: ProgressNet,
    episodes: Sequence[Episode],
    config: TrainConfig,
    run: RunFolder,
    reporter: Reporter,
    rehearsed: Sequence[Episode] = (),
    foreign: Sequence[str] = (),
    group: Group = ALONE,
    window: Window | None = None,
    shard: bool = False,
) -> None:
    """Train `net` in place, from the state saved in the run folder if there is one.

    `rehearsed` and `foreign` as in `Batches`, `window` and `shard` as in `train`.
    """
    if window is not None:
        refuse_looks(config)
        window.begin(config.seed, config.batch, group)
    refuse_several_wishes(episodes)
    need_perspectives(net.config, config.labels)
    views, size = net.config.views, net.config.encoder.image_size
    known = label([sized(one, views, size) for one in (*episodes, *rehearsed)], config.labels, labellers(config))
    if config.cache is not None:
        cache = MapCache(config.cache, net.encoder)
        known = [replace(e, views=cache.of_all(e.views)) for e in reporter.track(known, "look at pictures")]
    words = config.augment.words
    others = known_words() if words else ()
    batches = Batches(known[: len(episodes)], net.config.views, known[len(episodes) :], foreign, words, others)
    if config.lora and net.encoder.config.trained:
        raise UserError("lora is what a tower learns that does not learn otherwise, and that of start does")
    if config.lora:
        low_rank.adapt(net.encoder.clip.visual, config.lora)
    reporter.table("reward model", description(net, len(episodes), config))
    net.train()
    with passes(net, config, group, shard) as judge, open_log(run, reporter, config.wandb, group.rank) as log:
        learner = Learner(net, weight_decay=config.weight_decay)
        kept = settings(config) | ({"shard": True} if shard else {}) | (window.settings(group) if window else {})
        learner.resume(run.path / UNFINISHED, kept)
        group.say("resumed")  # before the first one may save anew
        updates = learn(learner, judge, batches, config, run.path / UNFINISHED, kept, log, group, window)
        for _ in reporter.track(updates, "train", total=100):
            pass
    if window is not None:
        window.end()
    net.eval()
    low_rank.merge(net.encoder.clip.visual)
    if group.rank == 0:
        learner.discard(run.path / UNFINISHED)


def passes(net: ProgressNet, config: TrainConfig, group: Group, shard: bool) -> AbstractContextManager[Judge]:
    """How a batch is judged, by a net whose towers are shared by the group if that is wanted."""
    if not shard:
        return nullcontext(partial(training_pass, net, precision=config.precision))
    if group.size == 1:
        raise UserError(
            "shard=true shares towers among processes: torchrun --nproc-per-node=2 -m embodied_rm train ..."
        )
    if config.cache is not None:
        raise UserError("shard=true shares towers that cache never looks with while training: say one of them")
    return sharded(net, config.precision, group)


def labellers(config: TrainConfig) -> dict[str, Labeller]:
    """Scheme -> the model that labels in its place, where the configuration names one."""
    found: dict[str, Labeller] = {}
    if config.label_tower is not None:
        found["discovered"] = by_features(config.label_tower, config.image_size)
    if config.label_judge is not None:
        found["preferences"] = by_judge(config.label_judge)
    return found


def description(net: ProgressNet, episodes: int, config: TrainConfig) -> dict[str, object]:
    """What is about to be trained, for the table that is shown before."""
    height, width = net.config.encoder.image_size
    return {
        "tower": f"{config.tower} at {width}x{height}",
        "views": ", ".join(net.config.views),
        "parameters": f"{sum(p.numel() for p in net.parameters()):,}",
        "episodes": episodes,
        "batch": f"{config.batch} episodes x {config.moments} moments",
        **{f"labels: {name}": weighted(scheme) for name, scheme in chosen(config.labels).items()},
        "schedule": f"{config.updates} updates" if config.max_seconds is None else f"{config.max_seconds:g} s",
    }


def weighted(scheme: Scheme) -> str:
    """The terms of a scheme's objective with their weights, in words."""
    return ", ".join(f"{WEIGHTS[term]:g} {term}" for term in scheme.teaches)
