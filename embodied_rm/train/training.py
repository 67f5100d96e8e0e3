"""Train a reward model on labeled episodes, and save it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.fingerprint import check_no_overlap, fingerprint
from embodied_rm.data.provenance import merge_provenance, provenance
from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import DataError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import resize_episode
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.warm_start import warm_start
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.train.fitting import fit, make_net
from embodied_rm.train.streaming import StreamingEpisodes
from embodied_rm.train.train_config import TrainConfig
from embodied_rm.types import Episode

CHECKPOINT_DIR = "checkpoint"
"""Folder of the trained model inside the run folder."""


def train(
    episodes: Iterable[Episode],
    config: TrainConfig,
    run: RunFolder,
    reporter: Reporter,
    held_out: Iterable[Episode] = (),
    init_net: ProgressNet | None = None,
    init_metadata: Mapping[str, Any] | None = None,
    group: DistContext = SINGLE_PROCESS,
    stream: StreamingEpisodes | None = None,
    fsdp: bool = False,
) -> ProgressNet:
    """Train on `episodes`, save the model under `<run>/checkpoint`, and return it in eval mode. Of a `group`, each
    process sees its share of every batch; the first one writes. `window`: what glimpsed the episodes, if they are not
    all in memory; `shard`: whether the group shares the towers, instead of holding all of them each.

    With `start`, a model that learns on (it is not changed): its tower, image size and fusion stay, views and steps
    that it does not know are added; `facts`: what it was trained on, as its checkpoint says.
    An interrupted run continues from its last saved state. Raises `DataError` when there are no episodes, one has no
    true progress, or one is held out too, or began in the same scene as one that is.
    """
    all_episodes = list(episodes)
    if not all_episodes:
        raise DataError("there are no episodes to train on")
    names, scenes = index_fingerprints(all_episodes)
    held_out_names, held_out_scenes = index_fingerprints(held_out)
    check_no_overlap(names, held_out_names)
    check_no_overlap(scenes, held_out_scenes, "scene")
    fresh_net = make_net(all_episodes, config)
    net = fresh_net if init_net is None else warm_start(init_net, fresh_net)
    fit(net, all_episodes, config, run, reporter, group=group, stream=stream, fsdp=fsdp)
    if group.rank:
        return net
    data_hash = hashlib.sha256("".join(sorted(names)).encode()).hexdigest()
    image_size = net.config.encoder.image_size
    data_provenance = provenance(
        resize_episode(e, net.config.views, image_size) if "scene" not in e.metadata else e for e in all_episodes
    )
    preference_provenance = {} if config.preference_model is None else read_manifest(config.preference_model)["facts"]
    combined_provenance = merge_provenance(
        init_metadata or {}, merge_provenance(data_provenance, preference_provenance)
    )
    save_progress_net(
        run.path / CHECKPOINT_DIR, net, {"data_sha256": data_hash, "episodes": len(all_episodes), **combined_provenance}
    )
    return net


def index_fingerprints(episodes: Iterable[Episode]) -> tuple[dict[str, str], dict[str, str]]:
    """Fingerprint -> episode name, and scene -> episode name for those that say in which scene they began."""
    names: dict[str, str] = {}
    scenes: dict[str, str] = {}
    for episode in episodes:
        names[fingerprint(episode)] = episode.name
        if "scene" in episode.metadata:
            scenes[episode.metadata["scene"]] = episode.name
    return names, scenes
