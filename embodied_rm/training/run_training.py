"""Train a reward model on labeled episodes, and save it."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.data.fingerprint import check_no_overlap, fingerprint
from embodied_rm.data.provenance import merge_provenance, provenance
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import EncoderConfig, resize_episode
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.pretrained_weights import tensors_sha256
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training.fitting import Execution, fit, make_net
from embodied_rm.training.held_out import HeldOut, HeldOutCurve
from embodied_rm.training.train_config import TrainConfig
from embodied_rm.types import Episode

CHECKPOINT_DIR = "checkpoint"  # folder of the model inside the run folder
HELD_OUT_FILE = "held_out.json"  # the held-out curve inside the run folder


def train(
    episodes: Iterable[Episode],
    config: TrainConfig,
    run: RunFolder,
    reporter: Reporter,
    held_out: HeldOut | None = None,
    init_net: ProgressNet | None = None,
    init_metadata: Mapping[str, Any] | None = None,
    execution: Execution | None = None,
) -> ProgressNet:
    """Train a reward model and save it under `<run>/checkpoint`; return it in eval mode. An interrupted run resumes.

    Args:
        held_out: Episodes that must not be trained on, nor others with their initial scenes: `DataError`. The weights
            that score them best are kept, and `<run>/held_out.json` has the curve, unless their config forbids it.
        init_net: Model to continue from, see `warm_start`. None: random weights.
        init_metadata: Provenance to which that of the episodes is added: of `init_net`, and of the dataset.
        execution: Processes and streaming; None: one process with all episodes in memory.
    """
    all_episodes = list(episodes)
    if not all_episodes:
        raise DataError("there are no episodes to train on")
    names, scenes = index_fingerprints(all_episodes)
    if held_out is not None:
        held_out = held_out.read()
        held_out_hash = check_held_out(held_out, names, scenes)
    fresh_net = make_net(all_episodes, config)
    net = fresh_net if init_net is None else warm_start(init_net, fresh_net)
    data_hash = hash_names(names)
    inputs = {"data": data_hash, "init_from": "none" if init_net is None else tensors_sha256(init_net.state_dict())}
    execution = replace(execution or Execution(), inputs=inputs)
    if held_out is not None and held_out.config.eval_percent:
        execution = add_curve(execution, HeldOutCurve(net, held_out, reporter), held_out_hash)
    fit(net, all_episodes, config, run, reporter, execution=execution)
    if execution.group.rank:
        return net
    if execution.held_out is not None:
        run.write_json(HELD_OUT_FILE, execution.held_out.summary())
    image_size = net.config.encoder.image_size
    data_provenance = provenance(
        resize_episode(e, net.config.views, image_size) if "scene" not in e.metadata else e for e in all_episodes
    )
    preference_provenance = {} if config.preference_model is None else read_manifest(config.preference_model)["facts"]
    combined = merge_provenance(init_metadata or {}, merge_provenance(data_provenance, preference_provenance))
    metadata = {"data_sha256": data_hash, "episodes": len(all_episodes), **combined}
    save_progress_net(run.path / CHECKPOINT_DIR, net, metadata)
    return net


def hash_names(names: Iterable[str]) -> str:
    """Return the SHA-256 of fingerprints in any order."""
    return hashlib.sha256("".join(sorted(names)).encode()).hexdigest()


def check_held_out(held_out: HeldOut, names: Mapping[str, str], scenes: Mapping[str, str]) -> str:
    """Return a digest of held-out episodes.

    Args:
        held_out: The episodes.
        names: Those that are trained on, see `index_fingerprints`.
        scenes: Their initial scenes.

    Raises:
        DataError: When one of them, or its scene, is trained on.
    """
    held_out_names, held_out_scenes = index_fingerprints(held_out.episodes)
    check_no_overlap(names, held_out_names)
    check_no_overlap(scenes, held_out_scenes, "scene")
    return hash_names(held_out_names)


def add_curve(execution: Execution, curve: HeldOutCurve, data_hash: str) -> Execution:
    """Return the execution with a held-out curve on data with this digest; `UserError` for sharded towers."""
    if execution.fsdp:
        raise UserError(
            "fsdp=true shards the towers, and one process scores held_out: set eval_percent=0 or fsdp=false"
        )
    settings = {name: str(value) for name, value in vars(curve.config).items()}
    return replace(execution, held_out=curve, inputs={**execution.inputs, "held_out": data_hash, **settings})


def index_fingerprints(episodes: Iterable[Episode]) -> tuple[dict[str, str], dict[str, str]]:
    """Return fingerprint -> episode name, and initial scene -> episode name for episodes with a recorded scene."""
    names: dict[str, str] = {}
    scenes: dict[str, str] = {}
    for episode in episodes:
        names[fingerprint(episode)] = episode.name
        if "scene" in episode.metadata:
            scenes[episode.metadata["scene"]] = episode.name
    return names, scenes


def freeze_also(own: EncoderConfig, other: EncoderConfig) -> EncoderConfig:
    """Return the description in which the parts are frozen that another one freezes."""
    trainable, trains_text = own.trainable and other.trainable, own.trains_text and other.trains_text
    if (trainable, trains_text) == (own.trainable, own.trains_text):
        return own
    return replace(own, trainable=trainable, text_trainable=trains_text)


def warm_start(source: ProgressNet, target: ProgressNet) -> ProgressNet:
    """Copy a trained net and extend it to the views and the subtask head of another net.

    The tower, the image size and the fusion are kept. What either net freezes is frozen. A new view embedding starts as
    the mean of the known ones. A larger subtask head starts from random weights. `UserError` if `source` is an exported
    model.
    """
    if isinstance(source, OnnxNet):
        raise UserError("an exported model cannot be trained: start from the checkpoint that it was exported from")
    views = tuple(dict.fromkeys([*source.config.views, *target.config.views]))
    max_subtasks = max(source.config.max_subtasks, target.config.max_subtasks)
    # The calibration belongs to the old weights.
    encoder = freeze_also(source.config.encoder, target.config.encoder)
    extended = replace(
        source.config,
        views=views,
        max_subtasks=max_subtasks,
        encoder=encoder,
        median_ood=None,
        interval_scale=None,
        success_threshold=None,
    )
    net = ProgressNet(extended)
    state_dict = net.state_dict()
    for name, tensor in source.state_dict().items():
        if name in state_dict and state_dict[name].shape == tensor.shape:
            state_dict[name] = tensor
    known_embedding = source.view_embedding.detach()
    new_embedding = known_embedding.mean(dim=0, keepdim=True).expand(len(views) - len(known_embedding), -1)
    state_dict["view_embedding"] = torch.cat([known_embedding, new_embedding])
    net.load_state_dict(state_dict)
    return net
