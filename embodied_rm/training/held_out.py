"""The curve of a training on held-out episodes: it decides which weights are kept, and when training stops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from embodied_rm.distributed import DistContext
from embodied_rm.errors import DataError, UserError, check_minimum
from embodied_rm.evaluate.progress_metrics import frames_until_success, nanmean
from embodied_rm.interrupts import defer_interrupts
from embodied_rm.labels.labeled_episode import LabeledEpisode, label_ground_truth
from embodied_rm.metrics import mae, roc_auc, voc
from embodied_rm.models.encoders import resize_episode
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import Reporter
from embodied_rm.types import Episode, RewardOutput

Row = dict[str, float]
"""One evaluation: step, percent of the schedule, and its metrics."""


@dataclass(frozen=True, kw_only=True)
class HeldOutConfig:
    """When a training is evaluated on its held-out episodes, and when it stops."""

    eval_percent: float = 10.0
    """Percent of the schedule between two evaluations; 0: none, so that the last weights are kept."""
    patience: int = 0  # evaluations in a row without a new best after which training stops; 0: it never stops early

    def __post_init__(self) -> None:
        if not 0 <= self.eval_percent <= 100:
            raise UserError(f"eval_percent must be in [0, 100], got {self.eval_percent}")
        check_minimum(self, 0, "patience")
        if self.patience and not self.eval_percent:
            raise UserError(f"patience={self.patience} counts evaluations, and eval_percent=0 makes none")

    def check_episodes(self, has_episodes: bool) -> None:
        """Raise `UserError` if the patience counts evaluations of episodes that are not given."""
        if self.patience and not has_episodes:
            raise UserError(f"patience={self.patience} counts evaluations of held_out, and there is none")


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Episodes that a training must not learn from."""

    episodes: Iterable[Episode]
    config: HeldOutConfig = field(default_factory=HeldOutConfig)

    def read(self) -> HeldOut:
        """Return them with all episodes in memory, unless they are not evaluated: they are then read only once."""
        return replace(self, episodes=list(self.episodes)) if self.config.eval_percent else self


class HeldOutCurve:
    """The evaluations of a net so far, and its weights at the best one: that with the smallest `held_out_error`."""

    def __init__(self, net: ProgressNet, held_out: HeldOut, reporter: Reporter) -> None:
        """Label the episodes; `DataError` if neither the progress nor the outcome of any is known."""
        views, image_size = net.config.views, net.config.encoder.image_size
        self._episodes = [resize_episode(episode, views, image_size) for episode in held_out.episodes]
        self._labels = label_ground_truth(self._episodes)
        if all(episode.outcome is None for episode in self._labels):
            raise DataError(
                f"held_out: neither progress nor outcome is known in all {len(self._labels)} episodes; eval_percent=0 "
                "only checks that none of them is trained on"
            )
        self.config, self._net, self._reporter = held_out.config, net, reporter
        self.rows: list[Row] = []
        self.best_weights: dict[str, Tensor] = {}

    @property
    def best_index(self) -> int:
        """Index of the best evaluation; of equal ones the first."""
        return int(np.argmin([row["error"] for row in self.rows]))

    @property
    def is_exhausted(self) -> bool:
        """Whether the last `patience` evaluations brought no new best."""
        num_worse = len(self.rows) - 1 - self.best_index if self.rows else 0
        return 0 < self.config.patience <= num_worse

    def is_due(self, fraction: float) -> bool:
        """Return whether to evaluate at this fraction of the schedule: at the start, at every mark, and at the end."""
        if not self.rows or fraction >= 1:
            return True
        every = self.config.eval_percent
        return int(100 * fraction / every) > int(self.rows[-1]["percent"] / every)

    def evaluate(self, step: int, fraction: float, group: DistContext) -> Row:
        """Score the episodes in the first process, add the row in all of them, and keep the weights if they are best.

        All processes must call this, with the same step and fraction.
        """
        row = None
        if group.rank == 0:
            row = {"step": step, "percent": 100 * fraction, **self._measure()}
        row = group.all_gather_object(row)[0]
        with defer_interrupts():
            self.rows.append(row)
            is_best = self.best_index == len(self.rows) - 1
            if is_best:
                frozen = {name for name, parameter in self._net.named_parameters() if not parameter.requires_grad}
                weights = self._net.state_dict()
                self.best_weights = {name: tensor.clone() for name, tensor in weights.items() if name not in frozen}
        if group.rank == 0:
            self._reporter.log(describe_row(row) + (", the best so far" if is_best else ""))
        return row

    def load(self, rows: Sequence[Row], best_weights: Mapping[str, Tensor]) -> None:
        """Continue from the evaluations of an interrupted run."""
        self.rows, self.best_weights = list(rows), dict(best_weights)

    def load_best_weights(self) -> None:
        """Give the net its best weights."""
        self._net.load_state_dict({**self._net.state_dict(), **self.best_weights})

    def summary(self) -> dict[str, Any]:
        """Return the entry for metrics.json: the step whose weights were kept, and all evaluations."""
        return {
            "best_step": self.rows[self.best_index]["step"],
            "stopped_early": self.is_exhausted,
            "curve": self.rows,
        }

    def _measure(self) -> Row:
        self._net.eval()
        try:
            predictions = score_episodes(self._net, self._episodes)
        except UserError as error:
            raise UserError(f"held_out: {error}; eval_percent=0 only checks that none of it is trained on") from None
        finally:
            self._net.train()
        return held_out_metrics(predictions, self._labels)


def held_out_metrics(predictions: Sequence[RewardOutput], labels: Sequence[LabeledEpisode]) -> Row:
    """Return `error` and the metrics that it combines, without those that the annotations leave undefined.

    Which ones these are depends on the annotations only, so that all evaluations of a training compare. A constant
    curve orders nothing: its VOC counts as 0.

    Args:
        predictions: Prediction of each episode.
        labels: Annotations of each episode; of one at least, the progress or the outcome is known.

    Returns:
        `voc` of the successes until they are done, `mae` where the progress is known, `success_auc` over the last
        frames, and `error`, see `held_out_error`.
    """
    pairs = list(zip((prediction.progress for prediction in predictions), labels, strict=True))
    orders = (voc(curve[: frames_until_success(episode)]) for curve, episode in pairs if episode.outcome)
    errors = (mae(curve, episode.progress) for curve, episode in pairs if episode.is_progress_known)
    known = [i for i, episode in enumerate(labels) if episode.outcome is not None]
    final_success = [predictions[i].success[-1] for i in known]
    metrics = {
        "voc": nanmean(np.nan_to_num(order) for order in orders),
        "mae": nanmean(errors),
        "success_auc": roc_auc(final_success, np.array([labels[i].outcome for i in known], bool)),
    }
    defined = {name: value for name, value in metrics.items() if not np.isnan(value)}
    return {"error": held_out_error(defined), **defined}


def held_out_error(metrics: Mapping[str, float]) -> float:
    """Return the number that chooses the best weights, in [0, 1]; lower is better.

    It is the mean of (1 - VOC) / 2, the MAE and 1 - AUC, of those that are defined: a reward needs the order of
    progress, its scale, failures included, and the outcome. Each alone can be perfect while another is poor.
    """
    errors = {
        "voc": lambda value: (1 - value) / 2,
        "mae": lambda value: value,
        "success_auc": lambda value: 1 - value,
    }
    return float(np.mean([errors[name](value) for name, value in metrics.items()]))


def describe_row(row: Mapping[str, float]) -> str:
    """Return an evaluation as one line of text."""
    values = ", ".join(f"{name} {value:.4f}" for name, value in row.items() if name not in ("step", "percent"))
    return f"held out at {row['percent']:.0f} %: {values}"
