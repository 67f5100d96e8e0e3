"""Train a reward model on labelled episodes: the verb and its configuration."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import DataError, UserError
from embodied_rm.fusion import Fusion
from embodied_rm.group import ALONE, Group
from embodied_rm.labels.frames import Batch, Batches, fingerprint, label, refuse_overlap
from embodied_rm.labels.schemes import Labeller, Scheme, Term, chosen
from embodied_rm.logs import Log, open_log
from embodied_rm.logs.weights_and_biases import refuse_project
from embodied_rm.models import low_rank
from embodied_rm.models.augment import OF_PICTURES, AugmentConfig
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import Encoder, sized
from embodied_rm.models.extend import extended
from embodied_rm.models.labellers import by_features, by_judge
from embodied_rm.models.learner import Learner
from embodied_rm.models.map_cache import MapCache
from embodied_rm.models.plans import wishes_of
from embodied_rm.models.pretrained import make_encoder
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.sharding import sharded
from embodied_rm.models.tokens import known_words
from embodied_rm.models.training_pass import Judge, Pictures, Precision, augmented, shared_passes, training_pass
from embodied_rm.objective import WEIGHTS, every_term, summed
from embodied_rm.provenance import provenance, together
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.types import Episode, IntArray
from embodied_rm.window import Window

CHECKPOINT = "checkpoint"
"""Folder of the trained model inside the run folder."""
UNFINISHED = "unfinished"
"""Folder of the training state inside the run folder, while training is under way."""
WARM_UP = 0.05
"""Share of the schedule in which the learning rate rises."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a reward model is trained."""

    tower: str = "patch_tower_tiny"
    """A timm image tower, a pretrained open_clip model (local-dir:<folder>, hf-hub:<owner>/<name>), or one of
    `transformers` (transformers:<folder>)."""
    text_tower: str | None = None
    """What reads instructions, where the tower of `transformers` does not: transformers:<folder>."""
    train_tower: bool = True
    """Whether image and text tower learn too; a large pretrained one may be left as it is."""
    lora: int = 0
    """Rank of what the attention of an image tower learns that does not learn otherwise; 0: nothing."""
    cache: Path | None = None
    """Folder in which it is kept what a tower that does not learn sees in each picture; None: it looks every time."""
    image_size: tuple[int, int] = (64, 64)
    """Height and width of the pictures the tower sees."""
    labels: tuple[str, ...] = ("hops",)
    """Labelling schemes whose objectives are summed; see `embodied_rm.labels.schemes`."""
    label_tower: str | None = None
    """Frozen tower, named as in `tower`, in whose features `discovered` finds steps; None: in pixels, coarsely."""
    label_judge: Path | None = None
    """Checkpoint of a reward model whose preferences `preferences` teaches; None: those of the true progress."""
    fusion: Fusion = "mean"
    updates: int = 1200
    max_seconds: float | None = None
    """Time budget; the schedule then follows the clock and `updates` is not used."""
    batch: int = 16
    """Episodes an update."""
    moments: int = 8
    """Moments of each; all ordered pairs are supervised."""
    accumulate: int = 1
    """Parts in which a process judges its share of a batch, one after the other: less memory for more time."""
    precision: Precision = "float32"
    """In which the net judges while it learns; weights, losses and optimiser are float32, and so is the checkpoint."""
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    checkpoint_seconds: float = 60.0
    """Seconds between two saves of the training state, from which an interrupted run resumes."""
    wandb: str | None = None
    """Project of Weights & Biases that is told every update too; None: none."""
    seed: int = 0

    def __post_init__(self) -> None:
        chosen(self.labels)
        refuse_project(self.wandb)
        for key, scheme in (("label_tower", "discovered"), ("label_judge", "preferences")):
            if getattr(self, key) is not None and scheme not in self.labels:
                raise UserError(f"{key} is for labels=[{scheme}], got labels=[{', '.join(self.labels)}]")
        if self.lora < 0 or (self.lora and self.train_tower):
            raise UserError(f"lora is a rank > 0 beside a tower with train_tower=false, or 0, got {self.lora}")
        if self.cache is not None:
            refuse_changes(self)
        for name in ("updates", "batch", "accumulate", "learning_rate", "checkpoint_seconds"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise UserError(f"max_seconds must be > 0 or null, got {self.max_seconds}")
        if self.moments < 3:
            raise UserError(f"moments must be >= 3, got {self.moments}")


def train(
    episodes: Iterable[Episode],
    config: TrainConfig,
    run: RunFolder,
    reporter: Reporter,
    held_out: Iterable[Episode] = (),
    start: ProgressNet | None = None,
    facts: Mapping[str, Any] | None = None,
    group: Group = ALONE,
    window: Window | None = None,
    shard: bool = False,
) -> ProgressNet:
    """Train on `episodes`, save the model under `<run>/checkpoint`, and return it in eval mode. Of a `group`, each
    process sees its share of every batch; the first one writes. `window`: what glimpsed the episodes, if they are not
    all in memory; `shard`: whether the group shares the towers, instead of holding all of them each.

    With `start`, a model that learns on (it is not changed): its tower, picture size and fusion stay, views and steps
    that it does not know are added; `facts`: what it was trained on, as its checkpoint says.
    An interrupted run continues from its last saved state. Raises `DataError` when there are no episodes, one has no
    true progress, or one is held out too, or began in the same scene as one that is.
    """
    known = list(episodes)
    if not known:
        raise DataError("there are no episodes to train on")
    names, scenes = identities(known)
    names_held_out, scenes_held_out = identities(held_out)
    refuse_overlap(names, names_held_out)
    refuse_overlap(scenes, scenes_held_out, "scene")
    fresh = new_net(known, config)
    net = fresh if start is None else extended(start, fresh)
    fit(net, known, config, run, reporter, group=group, window=window, shard=shard)
    if group.rank:
        return net
    data = hashlib.sha256("".join(sorted(names)).encode()).hexdigest()
    sight = net.config.encoder.image_size
    learned = provenance(sized(e, net.config.views, sight) if "scene" not in e.meta else e for e in known)
    judge = {} if config.label_judge is None else read_manifest(config.label_judge)["facts"]
    taught = together(facts or {}, together(learned, judge))
    save_progress_net(run.path / CHECKPOINT, net, {"data_sha256": data, "episodes": len(known), **taught})
    return net


def identities(episodes: Iterable[Episode]) -> tuple[dict[str, str], dict[str, str]]:
    """Fingerprint -> episode name, and scene -> episode name for those that say in which scene they began."""
    names: dict[str, str] = {}
    scenes: dict[str, str] = {}
    for episode in episodes:
        names[fingerprint(episode)] = episode.name
        if "scene" in episode.meta:
            scenes[episode.meta["scene"]] = episode.name
    return names, scenes


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


def refuse_changes(config: TrainConfig) -> None:
    """Raises `UserError` for what cannot be learned from kept maps: a tower that learns, pictures that are changed."""
    if config.train_tower or config.lora:
        raise UserError("cache keeps what a tower sees that does not learn: add train_tower=false, and no lora")
    changed = [name for name in OF_PICTURES if getattr(config.augment, name)]
    if changed:
        zeros = " ".join(f"augment.{name}=0" for name in changed)
        raise UserError(
            f"cache keeps what the tower sees in the pictures as they are, none of them changed: add {zeros}"
        )


def refuse_looks(config: TrainConfig) -> None:
    """Raises `UserError` for what looks at all pictures before anything is learned, and so needs them in memory."""
    names = [name for name, scheme in chosen(config.labels).items() if scheme.looks]
    found = [f"labels=[{name}]" for name in names]
    found += [f"{key}=" for key in ("label_judge", "cache") if getattr(config, key) is not None]
    if found:
        raise UserError(f"memory_gb keeps a part of the films in memory, and {found[0]} looks at all of them first")


def refuse_several_wishes(episodes: Iterable[Episode]) -> None:
    """Raises `DataError` naming an episode of several wishes: as one sentence, they are never read when judging."""
    for episode in episodes:
        if len(wishes := wishes_of(episode.instruction)) > 1:
            raise DataError(
                f"{episode.name}: its instruction {episode.instruction!r} names {len(wishes)} wishes, which a model "
                "judges one after the other: train on episodes of each, or join them by other words"
            )


def need_perspectives(net: NetConfig, labels: Sequence[str]) -> None:
    """Raises `UserError` when the net reads hops from the previous frame, but none of the labels teaches them."""
    if net.fusion != "forward" and not any(scheme.incremental for scheme in chosen(labels).values()):
        raise UserError(
            f"labels [{', '.join(labels)}] teach no hops from the previous frame, which fusion={net.fusion} reads: "
            "train with fusion=forward, or with further labels such as hops"
        )


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


def settings(config: TrainConfig) -> dict[str, Any]:
    """The configuration as JSON gives it back."""
    return json.loads(json.dumps(asdict(config), default=str))


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


def labellers(config: TrainConfig) -> dict[str, Labeller]:
    """Scheme -> the model that labels in its place, where the configuration names one."""
    found: dict[str, Labeller] = {}
    if config.label_tower is not None:
        found["discovered"] = by_features(config.label_tower, config.image_size)
    if config.label_judge is not None:
        found["preferences"] = by_judge(config.label_judge)
    return found
