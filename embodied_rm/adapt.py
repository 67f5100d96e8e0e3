"""Adapt a reward model to one annotated demonstration, or train one on nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.labels.identity import fingerprint
from embodied_rm.models.augment import AugmentConfig
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.encoders import sized
from embodied_rm.models.extend import extended
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.provenance import provenance, together
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.train import CHECKPOINT, TrainConfig, fit, new_net
from embodied_rm.types import Episode


@dataclass(frozen=True, kw_only=True)
class AdaptConfig(TrainConfig):
    """How a reward model is adapted. One recording is all there is, so its pictures are varied much more."""

    tower: str = "stride_tower_tiny"
    image_size: tuple[int, int] = (72, 96)
    max_seconds: float | None = 150.0
    batch: int = 8
    learning_rate: float = 1e-3
    train_sight: bool = True
    """Whether the image tower and what reads its maps learn too. Of a model that has seen such worlds they may stay."""
    augment: AugmentConfig = field(
        default_factory=lambda: AugmentConfig(
            shift=0.12, zoom=0.15, rotation=0.1, colour=0.3, flicker=0.1, drop_view=0.3
        )
    )


def adapt(
    demonstration: Episode,
    config: AdaptConfig,
    run: RunFolder,
    reporter: Reporter,
    start: ProgressNet | None = None,
    rehearsed: Sequence[Episode] = (),
    others: Sequence[Episode] = (),
    foreign: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> ProgressNet:
    """Learn the demonstration's task; save the model under `<run>/checkpoint` and return it in eval mode.

    `rehearsed`: episodes of what `start` knows, half of every batch, so that it does not forget how failures look and
    which words tell tasks apart. `others`: further demonstrations, and such as are the same under other sentences;
    `foreign`: sentences that ask for what none of them shows; `facts`: what `start` was trained on, as its checkpoint
    says.

    `start` is the model to adapt (it is not changed): its tower, picture size and fusion stay, views and steps that it
    does not know are added. Raises `DataError` when the demonstration has neither annotated steps nor progress,
    `UserError` when it is known to have failed or `start` is an exported model.
    """
    if config.lora and not config.train_sight:
        raise UserError("train_sight=false leaves the image tower as it is, and lora lets it learn: say one of them")
    if demonstration.success is False:
        raise UserError(f"{demonstration.name}: a demonstration must succeed, this one is marked as failed")
    fresh = new_net([demonstration, *others], config)
    net = fresh if start is None else extended(start, fresh)
    if not config.train_sight:
        net.encoder.clip.visual.requires_grad_(False)
        net.view_token.requires_grad_(False)
    fit(net, [demonstration, *others], config, run, reporter, rehearsed, foreign)
    shown = {fingerprint(episode) for episode in (demonstration, *others)}
    views, size = net.config.views, net.config.encoder.image_size
    seen = [sized(episode, views, size) for episode in (demonstration, *others, *rehearsed)]
    known = together(facts or {}, provenance(seen))
    told = {"data_sha256": fingerprint(demonstration), "episodes": len(shown), **known}
    save_progress_net(run.path / CHECKPOINT, net, told)
    return net
