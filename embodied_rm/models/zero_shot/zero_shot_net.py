"""`ZeroShotNet`: the trained part of the zero-shot model, and what is calibrated on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from embodied_rm.models.ood import EmbeddingDistribution
from embodied_rm.models.zero_shot.progress_filter import Readout
from embodied_rm.models.zero_shot.progress_gru import GRID, FrameCells, ProgressGru, ProgressGruConfig
from embodied_rm.models.zero_shot.sentence_match import SentenceMatch, SentenceMatchConfig


@dataclass(frozen=True, kw_only=True)
class ZeroShotConfig:
    """The architecture and the calibration of a `ZeroShotNet`, stored in its checkpoint."""

    gru: ProgressGruConfig
    match: SentenceMatchConfig
    num_members: int  # nets of the ensemble, of each kind
    fine_channels: int  # channels of the finest level of the encoder, which a cell starts with
    move_threshold: float
    """Mean squared change of a cell at which a frame is new. Slow, fast and still videos are alike to the net."""
    success: Readout  # of `success_features`
    relevance: Readout
    """Of the standardized match: probability that the sentence belongs to the image and not to another of the lab."""
    relevance_weight: float
    """Largest fraction of the progress that an irrelevant sentence takes away, in [0, 1]."""


class FramePrediction(NamedTuple):
    """Prediction for one frame of each of M videos, float [M] unless another shape is named."""

    progress_logit: Tensor
    direction: Tensor  # of the last change, in [-1, 1]
    disagreement: Tensor  # standard deviation of the progress that the members predict
    image: Tensor  # what the members see of the frame, [M, image_width]


class ZeroShotNet(nn.Module):
    """Ensembles of `ProgressGru` and `SentenceMatch`. Shapes: M images of videos, K members."""

    def __init__(self, config: ZeroShotConfig) -> None:
        super().__init__()
        self.config = config
        self.grus = nn.ModuleList(ProgressGru(config.gru) for _ in range(config.num_members))
        self.matches = nn.ModuleList(SentenceMatch(config.match) for _ in range(config.num_members))
        self.distribution = EmbeddingDistribution(config.fine_channels)

    @property
    def state_width(self) -> int:
        """Length of the recurrent state of one view."""
        return self.config.num_members * self.config.gru.width

    def step(self, frames: FrameCells, sentence: Tensor, hidden: Tensor) -> tuple[FramePrediction, Tensor]:
        """Predict one further frame of M videos.

        Args:
            frames: Cells of the frame, of the one before and of the first one.
            sentence: Sentence vectors [M, D].
            hidden: Recurrent state [M, state_width]; zeros at the first frame.

        Returns:
            The prediction, and the next state.
        """
        parts = hidden.chunk(len(self.grus), dim=1)
        results = [gru.step(frames, sentence, part) for gru, part in zip(self._grus(), parts, strict=True)]
        logits, states, images = zip(*results, strict=True)
        stacked = torch.stack(logits)
        prediction = FramePrediction(
            progress_logit=stacked[..., 0].mean(dim=0),
            direction=torch.tanh(stacked[..., 1]).mean(dim=0),
            disagreement=torch.sigmoid(stacked[..., 0]).std(dim=0, correction=0),
            image=torch.cat(images, dim=1),
        )
        return prediction, torch.cat(states, dim=1)

    @property
    def image_width(self) -> int:
        """Length of what the members see of an image."""
        return self.config.num_members * GRID**2 * self.config.gru.cell_width

    def match(self, tokens: Tensor, mask: Tensor, cells: Tensor) -> Tensor:
        """Standardized match [M] of sentences [M, L, D] with the image of their row, cells [M, 49, C]."""
        scores = [cast(SentenceMatch, match).standardize(tokens, mask, cells) for match in self.matches]
        return torch.stack(scores).mean(dim=0)

    def mean_texture(self, cells: Tensor) -> Tensor:
        """Mean [..., fine_channels] of the finest level over the cells [..., 16, C] of an image.

        It says what camera and what place an image is of, and hardly what happens there.
        """
        return cells[..., : self.config.fine_channels].mean(dim=-2)

    def ood(self, cells: Tensor) -> Tensor:
        """Out-of-distribution score [...] of images, cells [..., 16, C].

        It is above 1 for 1 % of the validation images as training reads them, and for 3 % as `score` reads them, by
        another resizing.
        """
        scores: Tensor = self.distribution(self.mean_texture(cells))
        return scores

    def _grus(self) -> list[ProgressGru]:
        return [cast(ProgressGru, gru) for gru in self.grus]

    def with_calibration(self, *, success: Readout, relevance: Readout) -> ZeroShotNet:
        """Return a net that shares the weights and has these readouts."""
        net = ZeroShotNet(replace(self.config, success=success, relevance=relevance))
        net.grus, net.matches, net.distribution = self.grus, self.matches, self.distribution
        return net.train(self.training)
