"""Train a reward model on labelled episodes, and save it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import DataError
from embodied_rm.group import ALONE, Group
from embodied_rm.labels.identity import fingerprint, refuse_overlap
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import sized
from embodied_rm.models.extend import extended
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.provenance import provenance, together
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.train.config import TrainConfig
from embodied_rm.train.fitting import fit, new_net
from embodied_rm.types import Episode
from embodied_rm.window import Window

CHECKPOINT = "checkpoint"
"""Folder of the trained model inside the run folder."""


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
