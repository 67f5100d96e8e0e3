"""Fit a net, new or pretrained, to episodes."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch

from embodied_rm.distributed import SINGLE_PROCESS, DistContext, find_device
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.comparisons import match_comparisons, read_comparisons
from embodied_rm.labels.labeled_episode import label
from embodied_rm.labels.schemes import Labeler, select_schemes
from embodied_rm.logs import open_logger
from embodied_rm.models import lora
from embodied_rm.models.encoders import resize_episode
from embodied_rm.models.feature_cache import FeatureCache
from embodied_rm.models.make_encoder import has_own_image_size, make_encoder
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.subgoals import split_subgoals
from embodied_rm.models.tokens import known_words
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training.batches import LabeledBatchSampler
from embodied_rm.training.forward import ForwardFn, training_forward
from embodied_rm.training.held_out import HeldOutCurve
from embodied_rm.training.labelers import feature_labeler, preference_labeler
from embodied_rm.training.loop import train_loop
from embodied_rm.training.objective import LOSS_WEIGHTS
from embodied_rm.training.sharding import shard_towers
from embodied_rm.training.streaming import StreamingEpisodes
from embodied_rm.training.train_config import TrainConfig, to_json_dict
from embodied_rm.training.train_state import TrainState
from embodied_rm.types import Episode

ConfigT = TypeVar("ConfigT", bound=TrainConfig)
TRAIN_STATE_DIR = "unfinished"  # folder of the training state inside the run folder, until training ends


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Processes, device, memory and evaluation of a training run. They do not change the objective."""

    group: DistContext = SINGLE_PROCESS  # processes that share each batch; rank 0 writes
    device: str = "cpu"  # device of the net and its images in training: cpu or cuda
    stream: StreamingEpisodes | None = None  # loads the episodes; None: all are in memory
    fsdp: bool = False  # whether the group shards the towers instead of replicating them
    held_out: HeldOutCurve | None = None
    """Curve of the net on held-out episodes, whose best weights are kept; None: the last weights are kept."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Digests of the data and of the initial weights; an interrupted run resumes on the same ones only."""


def make_net(episodes: Sequence[Episode], config: TrainConfig) -> ProgressNet:
    """Create a net with random weights, or a pretrained encoder, for the views and subtasks of the episodes."""
    torch.manual_seed(config.seed)
    encoder = make_encoder(
        config.encoder,
        config.image_size,
        trainable=config.train_encoder,
        text_encoder=config.text_encoder,
        text_trainable=config.train_text_encoder,
    )
    views = tuple(dict.fromkeys(name for episode in episodes for name in episode.views))
    num_subtasks = max((len({subtask.name for subtask in episode.subtasks}) for episode in episodes), default=0)
    net_config = NetConfig(views=views, encoder=encoder.config, max_subtasks=max(num_subtasks, 1), fusion=config.fusion)
    return ProgressNet(net_config, encoder)


def with_image_size_of_encoder(config: ConfigT) -> ConfigT:
    """Return the config with the image size of its pretrained encoder, at which videos are then decoded.

    Raises:
        UserError: When the config asks for another size.
        CheckpointError: When the encoder cannot be loaded.
    """
    if not has_own_image_size(config.encoder):
        return config
    encoder = make_encoder(config.encoder, config.image_size, text_encoder=config.text_encoder)
    size = encoder.config.image_size
    if config.image_size not in (size, type(config).image_size):
        raise UserError(f"encoder={config.encoder} takes images of {list(size)}, got image_size={config.image_size}")
    return replace(config, image_size=size)


def fit(
    net: ProgressNet,
    episodes: Sequence[Episode],
    config: TrainConfig,
    run: RunFolder,
    reporter: Reporter,
    replay_episodes: Sequence[Episode] = (),
    negative_instructions: Sequence[str] = (),
    execution: Execution | None = None,
) -> None:
    """Train `net` in place, from the state saved in the run folder if any; see `LabeledBatchSampler` and `train`."""
    execution = execution or Execution()
    group, stream, fsdp = execution.group, execution.stream, execution.fsdp
    if stream is not None:
        check_streamable(config)
        stream.start(config.seed, config.batch_size, group)
    check_single_subgoal(episodes)
    require_incremental_labels(net.config, config.label_schemes)
    views, image_size = net.config.views, net.config.encoder.image_size
    resized_episodes = [resize_episode(episode, views, image_size) for episode in (*episodes, *replay_episodes)]
    labeled_episodes = label(resized_episodes, config.label_schemes, make_labelers(config))
    if config.feature_cache_dir is not None:
        cache = FeatureCache(config.feature_cache_dir, net.encoder)
        tracked_episodes = reporter.track(labeled_episodes, "cache image features")
        labeled_episodes = [replace(e, views=cache.get_views(e.views)) for e in tracked_episodes]
    own_episodes, replayed_episodes = labeled_episodes[: len(episodes)], labeled_episodes[len(episodes) :]
    comparisons = (
        () if config.comparisons is None else match_comparisons(read_comparisons(config.comparisons), episodes)
    )
    word_prob = config.augment.word_replacement_prob
    word_args = (word_prob, known_words() if word_prob else ())
    sampler_args = (own_episodes, views, replayed_episodes, negative_instructions, *word_args, comparisons)
    batch_sampler = LabeledBatchSampler(*sampler_args)
    if config.lora_rank:
        lora.add_lora(net.encoder.clip.visual, config.lora_rank)
    net.to(find_device(execution.device, "device"))
    reporter.table("reward model", describe_training(net, len(episodes), config))
    net.train()
    with (
        make_forward(net, config, group, fsdp) as forward,
        open_logger(run, reporter, config.wandb_project, group.rank) as log,
    ):
        encoder = net.encoder.config
        # Updates of LoRA are new weights: they learn at the rate of the heads.
        image_lr_scale = config.pretrained_lr_scale if encoder.is_pretrained and encoder.trainable else 1.0
        train_state = TrainState(
            net, weight_decay=config.weight_decay, image_lr_scale=image_lr_scale, held_out=execution.held_out
        )
        resume_settings = to_json_dict(config) | (stream.settings(group) if stream else {})
        resume_settings |= {"fsdp": True} if fsdp else {}
        resume_settings |= execution.inputs
        resume_settings |= {"compared": repr(comparisons)} if comparisons else {}
        train_state.resume(run.path / TRAIN_STATE_DIR, resume_settings)
        group.all_gather_object("resumed")  # all processes load before rank 0 may save again
        save = partial(train_state.save, run.path / TRAIN_STATE_DIR, resume_settings, group)
        percents = train_loop(train_state, forward, batch_sampler, config, save, log, group, stream)
        try:
            for _ in reporter.track(percents, "train", total=100):
                pass
        except KeyboardInterrupt:
            if group.world_size == 1:  # saving is a collective operation, and the other processes may be elsewhere
                save()
            raise
    if stream is not None:
        stream.close()
    net.eval()
    if execution.held_out is not None:
        execution.held_out.load_best_weights()
    lora.merge_lora(net.encoder.clip.visual)
    net.to("cpu")
    if group.rank == 0:
        train_state.discard(run.path / TRAIN_STATE_DIR)


def make_forward(
    net: ProgressNet, config: TrainConfig, group: DistContext, fsdp: bool
) -> AbstractContextManager[ForwardFn]:
    """Return a context with the forward function of training, with sharded towers for `fsdp`.

    `UserError` if `fsdp` is set for one process, or with cached features.
    """
    if not fsdp:
        return nullcontext(partial(training_forward, net, precision=config.precision))
    if group.world_size == 1:
        raise UserError("fsdp=true shards towers among processes: torchrun --nproc-per-node=2 -m embodied_rm train ...")
    if config.feature_cache_dir is not None:
        raise UserError("fsdp=true shards towers that feature_cache_dir= never runs in training: set one of them")
    return shard_towers(net, config.precision, group)


def make_labelers(config: TrainConfig) -> dict[str, Labeler]:
    """Return scheme -> labeler for the schemes whose labels need a model by the configuration."""
    labelers: dict[str, Labeler] = {}
    if config.change_point_encoder is not None:
        labelers["change_points"] = feature_labeler(config.change_point_encoder, config.image_size)
    if config.preference_model is not None:
        labelers["preferences"] = preference_labeler(config.preference_model)
    return labelers


def describe_training(net: ProgressNet, num_episodes: int, config: TrainConfig) -> dict[str, object]:
    """Return the rows of the table that is reported before training."""
    height, width = net.config.encoder.image_size
    loss_terms = {
        f"labels: {name}": ", ".join(f"{LOSS_WEIGHTS[term]:g} {term}" for term in scheme.loss_terms)
        for name, scheme in select_schemes(config.label_schemes).items()
    }
    return {
        "encoder": f"{config.encoder} at {width}x{height}",
        "views": ", ".join(net.config.views),
        "parameters": f"{sum(p.numel() for p in net.parameters()):,}",
        "trained parameters": f"{sum(p.numel() for p in net.parameters() if p.requires_grad):,}",
        "episodes": num_episodes,
        "batch": f"{config.batch_size} episodes x {config.frames_per_episode} frames",
        **loss_terms,
        "schedule": f"{config.steps} steps" if config.max_seconds is None else f"{config.max_seconds:g} s",
    }


def check_streamable(config: TrainConfig) -> None:
    """Raise `UserError` if a part of the configuration reads all images before training."""
    names = [name for name, scheme in select_schemes(config.label_schemes).items() if scheme.needs_all_frames]
    conflicts = [f"label_schemes=[{name}]" for name in names]
    keys = ("preference_model", "feature_cache_dir", "comparisons")
    conflicts += [f"{key}=" for key in keys if getattr(config, key) is not None]
    if conflicts:
        raise UserError(
            f"frame_cache_gb keeps a part of the videos in memory, but {conflicts[0]} reads all of them before training"
        )


def check_single_subgoal(episodes: Iterable[Episode]) -> None:
    """Raise `DataError` if an instruction has several subgoals: inference encodes each subgoal separately."""
    for episode in episodes:
        if len(subgoals := split_subgoals(episode.instruction)) > 1:
            raise DataError(
                f"{episode.name}: its instruction {episode.instruction!r} has {len(subgoals)} subgoals, which a model "
                "scores one after the other: train on episodes of each, or join them by other words"
            )


def require_incremental_labels(net_config: NetConfig, label_schemes: Sequence[str]) -> None:
    """Raise `UserError` if the fusion uses hops from the previous frame and no label scheme teaches them."""
    incremental = any(scheme.incremental for scheme in select_schemes(label_schemes).values())
    if net_config.fusion != "forward" and not incremental:
        raise UserError(
            f"label_schemes [{', '.join(label_schemes)}] teach no hops from the previous frame, which "
            f"fusion={net_config.fusion} uses: train with fusion=forward, or add a scheme such as hops"
        )
