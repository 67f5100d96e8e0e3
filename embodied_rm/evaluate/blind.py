"""What curves that look at no picture would say: the baselines, judged like a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embodied_rm.evaluate.curve_table import finish
from embodied_rm.evaluate.judged import Judged
from embodied_rm.labels.labelled import LabelledEpisode
from embodied_rm.models.baselines import Baseline
from embodied_rm.types import Array, BoolArray, Progress


def blind(baseline: Baseline, labels: Sequence[LabelledEpisode]) -> Judged:
    """The baseline's judgement of these episodes, and of the successes among them backwards. It names no step, doubts
    nothing and takes no time."""

    def said(truth: Array, done: BoolArray) -> Progress:
        curve, verdict = baseline(truth, done)
        return Progress(
            value=curve,
            valid=np.ones(len(curve), bool),
            stage=np.full(len(curve), -1),
            success=verdict,
            spread=np.zeros(len(curve), np.float32),
        )

    def backwards(episode: LabelledEpisode) -> Progress | None:
        if not episode.done[-1]:
            return None
        frames = np.append(0, np.arange(finish(episode) - 1, -1, -1))  # as `judged.backward` shows them
        return said(episode.progress[frames], episode.done[frames])

    return Judged(
        curves=tuple(said(episode.progress, episode.done) for episode in labels),
        backwards=tuple(map(backwards, labels)),
        seconds=0.0,
        frames=0,
    )
