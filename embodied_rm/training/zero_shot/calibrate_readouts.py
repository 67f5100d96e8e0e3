"""Calibrate success and relevance of a zero-shot net on labs that it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.zero_shot.progress_filter import FilterState, Readout, success_features
from embodied_rm.models.zero_shot.sentence_encoder import SentenceEncoder
from embodied_rm.models.zero_shot.tracked_views import track_video
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.training.zero_shot.episode_features import EpisodeFeatures

NUM_WRONG_SENTENCES = 3  # per episode
NEWTON_STEPS, RIDGE = 30, 1e-2


@torch.inference_mode()
def calibrate(net: ZeroShotNet, episodes: Sequence[EpisodeFeatures], text: SentenceEncoder, seed: int) -> ZeroShotNet:
    """Return the net with readouts that are fitted to these episodes.

    Success is fitted to whole videos, against their halves, their reverse, their first frame, and the video and its
    reverse in a row. Relevance is fitted to the own sentences, against those of other episodes of the lab.
    """
    rng = np.random.default_rng(seed)
    features, succeeded, matches, right = [], [], [], []
    for episode in episodes:
        cells, sentence = episode.cells[0].float(), text.encode([episode.sentences[0]]).mean()
        half = cells[: max(1, len(cells) // 2)]
        backward = cells.flip(0)
        failed = (half, backward, cells[:1], torch.cat([cells, backward]))
        for video, label in ((cells, True), *((video, False) for video in failed)):
            curve = end_of_curve(net, video, sentence)
            features.append(torch.cat(success_features(curve)))
            succeeded.append(label)
        others = sorted({e.sentences[0] for e in episodes if e.group == episode.group} - {episode.sentences[0]})
        chosen = list(rng.permutation(others)[:NUM_WRONG_SENTENCES])
        for sentence_text, label in [(episode.sentences[0], True), *((str(other), False) for other in chosen)]:
            tokens = text.encode([sentence_text])
            matches.append(net.match(tokens.vectors, tokens.mask, episode.match_cells[:1].float()))
            right.append(label)
    return net.with_calibration(
        success=fit_readout(torch.stack(features), torch.tensor(succeeded)),
        relevance=fit_readout(torch.stack(matches), torch.tensor(right)),
    )


def end_of_curve(net: ZeroShotNet, cells: Tensor, sentence: Tensor) -> FilterState:
    """Return the curve at the last frame of a video, cells [T, 16, C], as the model computes it."""
    *_, state = track_video(net, cells[:, None], sentence)
    return FilterState(state.logit[0], state.climb[0])


def fit_readout(features: Tensor, positive: Tensor) -> Readout:
    """Logistic regression of features [N, F] by Newton's method; both classes weigh the same."""
    mean, std = features.mean(dim=0), features.std(dim=0).clamp_min(1e-6)
    design = torch.cat([torch.ones(len(features), 1), (features - mean) / std], dim=1).double()
    target = positive.double()
    weights = target / (2 * target.sum()) + (1 - target) / (2 * (1 - target).sum())
    coefficients = torch.zeros(design.shape[1], dtype=torch.double)
    for _ in range(NEWTON_STEPS):
        predicted = torch.sigmoid(design @ coefficients)
        gradient = design.T @ (weights * (predicted - target)) + RIDGE * coefficients
        hessian = design.T @ (design * (weights * predicted * (1 - predicted))[:, None])
        coefficients = coefficients - torch.linalg.solve(hessian + RIDGE * torch.eye(len(hessian)), gradient)
    slopes = coefficients[1:] / std
    return Readout(float(coefficients[0] - slopes @ mean.double()), tuple(map(float, slopes)))
