"""Adapt a reward model to one annotated demonstration, or train one on nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.provenance import merge_provenance, provenance
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import resize_episode
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.warm_start import warm_start
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.train import CHECKPOINT_DIR, TrainConfig, fit, make_net
from embodied_rm.train.augment import AugmentConfig
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class AdaptConfig(TrainConfig):
    """How a reward model is adapted. One recording is all there is, so its images are varied much more."""

    tower: str = "stride_tower_tiny"
    image_size: tuple[int, int] = (72, 96)
    max_seconds: float | None = 150.0
    batch_size: int = 8
    learning_rate: float = 1e-3
    train_image_encoder: bool = True
    """Whether the image tower and what reads its maps learn too. Of a model that has seen such environments they may stay."""
    augment: AugmentConfig = field(
        default_factory=lambda: AugmentConfig(
            shift=0.12, zoom=0.15, rotation=0.1, color_jitter=0.3, brightness_jitter=0.1, view_dropout_prob=0.3
        )
    )


def adapt(
    demonstration: Episode,
    config: AdaptConfig,
    run: RunFolder,
    reporter: Reporter,
    init_net: ProgressNet | None = None,
    replay_episodes: Sequence[Episode] = (),
    other_demonstrations: Sequence[Episode] = (),
    negative_instructions: Sequence[str] = (),
    init_metadata: Mapping[str, Any] | None = None,
) -> ProgressNet:
    """Learn the demonstration's task; save the model under `<run>/checkpoint` and return it in eval mode.

    `rehearsed`: episodes of what `start` knows, half of every batch, so that it does not forget how failures look and
    which words tell tasks apart. `others`: further demonstrations, and such as are the same under other sentences;
    `foreign`: sentences that ask for what none of them shows; `facts`: what `start` was trained on, as its checkpoint
    says.

    `start` is the model to adapt (it is not changed): its tower, image size and fusion stay, views and steps that it
    does not know are added. Raises `DataError` when the demonstration has neither annotated steps nor progress,
    `UserError` when it is known to have failed or `start` is an exported model.
    """
    if config.lora_rank and not config.train_image_encoder:
        raise UserError("train_sight=false leaves the image tower as it is, and lora lets it learn: say one of them")
    if demonstration.success is False:
        raise UserError(f"{demonstration.name}: a demonstration must succeed, this one is marked as failed")
    fresh_net = make_net([demonstration, *other_demonstrations], config)
    net = fresh_net if init_net is None else warm_start(init_net, fresh_net)
    if not config.train_image_encoder:
        net.encoder.clip.visual.requires_grad_(False)
        net.view_token.requires_grad_(False)
    fit(net, [demonstration, *other_demonstrations], config, run, reporter, replay_episodes, negative_instructions)
    fingerprints = {fingerprint(episode) for episode in (demonstration, *other_demonstrations)}
    views, image_size = net.config.views, net.config.encoder.image_size
    resized_episodes = [
        resize_episode(episode, views, image_size)
        for episode in (demonstration, *other_demonstrations, *replay_episodes)
    ]
    data_provenance = merge_provenance(init_metadata or {}, provenance(resized_episodes))
    metadata = {"data_sha256": fingerprint(demonstration), "episodes": len(fingerprints), **data_provenance}
    save_progress_net(run.path / CHECKPOINT_DIR, net, metadata)
    return net
