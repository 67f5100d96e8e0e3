"""Train a zero-shot model on features of episodes, and calibrate it on those of other labs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from embodied_rm.errors import DataError, check_minimum
from embodied_rm.models.ood import MIN_SAMPLES, EmbeddingDistribution
from embodied_rm.models.zero_shot.progress_filter import Readout
from embodied_rm.models.zero_shot.progress_gru import ProgressGru, ProgressGruConfig
from embodied_rm.models.zero_shot.sentence_encoder import SentenceEncoder
from embodied_rm.models.zero_shot.sentence_match import SentenceMatch, SentenceMatchConfig
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotConfig, ZeroShotNet
from embodied_rm.run_folder import Reporter
from embodied_rm.training.zero_shot.calibrate_readouts import calibrate
from embodied_rm.training.zero_shot.episode_features import EpisodeFeatures
from embodied_rm.training.zero_shot.fit_nets import FitConfig, FitStep, fit_progress_gru, fit_sentence_match

NUM_BANK_IMAGES = 128
CHANGE_QUANTILE = 0.3  # of the changes between encoded frames: smaller ones are no new frame
UNCALIBRATED = Readout(0.0, ())

FitCurves = dict[str, list[tuple[int, float, float]]]
"""Net -> (number of updates, loss, loss on held-out episodes)."""


@dataclass(frozen=True, kw_only=True)
class ZeroShotTrainConfig:
    """How the nets are fitted."""

    num_members: int = 3  # nets of each kind
    progress: FitConfig = field(default_factory=lambda: FitConfig(steps=900, batch_size=32))
    match: FitConfig = field(default_factory=lambda: FitConfig(steps=300, batch_size=48, weight_decay=0.1))
    relevance_weight: float = 0.5  # largest fraction of the progress that an irrelevant sentence takes away
    seed: int = 0

    def __post_init__(self) -> None:
        check_minimum(self, 1, "num_members")


def train_zero_shot(
    train: Sequence[EpisodeFeatures],
    validation: Sequence[EpisodeFeatures],
    text: SentenceEncoder,
    config: ZeroShotTrainConfig,
    fine_channels: int,
    reporter: Reporter,
) -> tuple[ZeroShotNet, FitCurves]:
    """Fit the members from different seeds, then calibrate on the validation episodes; return the losses too.

    Args:
        train: Features of the episodes that are trained on.
        validation: Those of labs that are not.
        text: The sentence encoder.
        config: How the nets are fitted.
        fine_channels: See `ZeroShotConfig`.
        reporter: Shows the progress.

    Raises:
        DataError: When there are too few frames.
    """
    channels = train[0].cells.shape[-1]
    torch.manual_seed(config.seed)
    net = ZeroShotNet(
        ZeroShotConfig(
            gru=ProgressGruConfig(channels=channels, text_width=text.width),
            match=SentenceMatchConfig(channels=channels, text_width=text.width, num_bank_images=NUM_BANK_IMAGES),
            num_members=config.num_members,
            fine_channels=fine_channels,
            move_threshold=typical_change(train),
            success=UNCALIBRATED,
            relevance=UNCALIBRATED,
            relevance_weight=config.relevance_weight,
        )
    )
    net.distribution = fit_distribution(net, train, validation)
    threshold, curves = net.config.move_threshold, FitCurves()
    data = list(train), list(validation)
    for k, (gru, match) in enumerate(zip(net.grus, net.matches, strict=True)):
        member, seed = f"member {k + 1} of {config.num_members}", config.seed + k
        assert isinstance(gru, ProgressGru) and isinstance(match, SentenceMatch)
        for name, steps, num_steps in (
            ("progress", fit_progress_gru(gru, *data, text, config.progress, threshold, seed), config.progress.steps),
            ("match", fit_sentence_match(match, *data, text, config.match, seed), config.match.steps),
        ):
            curves[f"{name}, {member}"] = run_fit(steps, f"{name}, {member}", num_steps, reporter)
    return calibrate(net.eval(), validation, text, config.seed), curves


def fit_distribution(
    net: ZeroShotNet, train: Sequence[EpisodeFeatures], validation: Sequence[EpisodeFeatures]
) -> EmbeddingDistribution:
    """Fit the distribution of the images of the training episodes; its limit is that of the validation episodes.

    Raises:
        DataError: When there are too few frames.
    """
    textures = []
    for part, episodes in (("train", train), ("validation", validation)):
        textures.append(torch.cat([net.mean_texture(episode.cells[0].float()) for episode in episodes]))
        if (count := len(textures[-1])) < MIN_SAMPLES:
            raise DataError(f"labs.{part}: its videos have {count} frames, at least {MIN_SAMPLES} are needed")
    return EmbeddingDistribution.fit(*textures)


def run_fit(
    steps: Iterator[FitStep], description: str, num_steps: int, reporter: Reporter
) -> list[tuple[int, float, float]]:
    """Run a fit, show its progress, and return the losses where the held-out one was measured."""
    curve = [
        (number, step.loss, step.held_out_loss)
        for number, step in enumerate(reporter.track(steps, description, total=num_steps), start=1)
        if step.held_out_loss is not None
    ]
    reporter.log(f"{description}: last loss {curve[-1][1]:.3f}, on held-out episodes {curve[-1][2]:.3f}")
    return curve


def typical_change(episodes: Sequence[EpisodeFeatures]) -> float:
    """Change between two encoded frames that makes a frame new: mean squared change of a cell."""
    changes = []
    for episode in episodes:
        cells = episode.cells[0].float()
        changes.append((cells[1:] - cells[:-1]).square().sum(dim=2).mean(dim=1))
    return float(torch.cat(changes).quantile(CHANGE_QUANTILE))
