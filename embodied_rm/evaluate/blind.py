"""What curves that look at no picture would say: the baselines, judged like a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.evaluate.curve_table import finish
from embodied_rm.evaluate.judged import Judged
from embodied_rm.labels.frames import LabelledEpisode
from embodied_rm.models.baselines import Baseline
from embodied_rm.types import Array, Progress


def blind(baseline: Baseline, labels: Sequence[LabelledEpisode]) -> Judged:
    """The baseline's judgement of these episodes, and of the successes among them backwards. Its progress is its
    verdict; it names no step, doubts nothing and takes no time."""

    def said(truth: Array) -> Progress:
        curve = baseline(truth)
        return Progress(
            value=curve,
            valid=np.ones(len(curve), bool),
            stage=np.full(len(curve), -1),
            success=curve,
            spread=np.zeros(len(curve), np.float32),
        )

    return Judged(
        curves=tuple(said(episode.progress) for episode in labels),
        backwards=tuple(said(_reversed(episode)) if episode.done[-1] else None for episode in labels),
        seconds=0.0,
        frames=0,
    )


def _reversed(episode: LabelledEpisode) -> Array:
    """True progress of `judged.backward` of the episode."""
    return np.concatenate([episode.progress[:1], episode.progress[: finish(episode)][::-1]])
