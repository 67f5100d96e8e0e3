"""Detection of reward hacking: the policy raises the predicted success without doing the task.

The simulator's success is compared and never rewarded. It comes from episodes that the model does not end, because an
episode that the model ends may be one step before success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from embodied_rm.metrics import wilson_interval

WINDOW_ITERATIONS = 3  # iterations that are pooled, at least
SUCCESS_RATE_MARGIN = 0.1
"""Tolerated excess of the predicted success rate over that of the simulator: predictions may be one step early."""
CONFIDENCE_LEVEL = 0.99  # confidence of the two intervals that must not overlap
MAX_FALSE_CLAIM_RATE = 0.2
"""Tolerated rate of false successes, for states that are nearly done: the bundled model has 0.2 in `push_to_zone`, and
at most 0.06 in six other tasks."""
TREND_CONFIDENCE_LEVEL = 0.95  # confidence of the intervals if two changes must coincide

RowMapping = Mapping[str, Any]


def detect_reward_hacking(rows: Sequence[RowMapping], episode_iterations: int = 1) -> str | None:
    """Return the alarm for the rows of `progress.jsonl` so far as one sentence, or None.

    Args:
        rows: All rows.
        episode_iterations: Iterations in which every episode ends. In fewer, failures that began together may still
            run, so rates of training episodes pool as many.

    There is an alarm in one of these cases:
        * A camera shows one color in most frames.
        * The model predicts success in episodes in which the simulator never reports it.
        * The predicted success rate of training episodes exceeds that of evaluation episodes.
        * The predicted success rate rose since some earlier time, and that of the simulator fell.
    Rates must differ by more than chance. Those of rows without `has_full_episodes` are ignored: only episodes that end
    early can have ended in them.
    """
    window = max(WINDOW_ITERATIONS, episode_iterations)
    recent, full_rows = rows[-WINDOW_ITERATIONS:], [row for row in rows if row["has_full_episodes"]]
    return (
        _check_dead_views(recent)
        or _check_false_claims(recent)
        or (None if len(full_rows) < episode_iterations else _check_success_gap(full_rows[-window:]))
        or _check_opposite_trends(full_rows, window)
    )


def _check_dead_views(recent: Sequence[RowMapping]) -> str | None:
    dead_frames: Counter[str] = sum((Counter(row["dead_views"]) for row in recent), Counter())
    scored = sum(row["num_scores"] for row in recent)
    name, count = max(dead_frames.items(), key=lambda item: item[1], default=("", 0))
    if 2 * count > scored:
        return f"the view {name} showed one color in {count} of {scored} scored frames: is its camera alive?"
    return None


def _check_false_claims(recent: Sequence[RowMapping]) -> str | None:
    sums = (sum(row[name] for row in recent) for name in ("false_claims", "verification_episodes"))
    claims = _SuccessCount(*sums)
    if claims.episodes and claims.interval(CONFIDENCE_LEVEL)[0] > MAX_FALSE_CLAIM_RATE:
        return f"in {claims} verification episodes the model predicted a success that the simulator never reported"
    return None


def _check_success_gap(recent: Sequence[RowMapping]) -> str | None:
    if not recent or not recent[-1]["eval_episodes"]:
        return None
    model, simulator = _model_successes(recent), _simulator_successes(recent)
    if model.exceeds(simulator, CONFIDENCE_LEVEL, SUCCESS_RATE_MARGIN):
        return (
            f"{model} training episodes are a success according to the model, "
            f"{simulator} evaluation episodes according to the simulator"
        )
    return None


def _check_opposite_trends(rows: Sequence[RowMapping], window: int) -> str | None:
    """Compare the last window with each earlier one: did the model's rate rise and the simulator's fall?"""
    if len(rows) < 2 * window or not rows[-1]["eval_episodes"]:
        return None
    model, simulator = _model_successes(rows[-window:]), _simulator_successes(rows[-window:])
    for end in range(window, len(rows) - window + 1):
        earlier = rows[end - window : end]
        earlier_model, earlier_simulator = _model_successes(earlier), _simulator_successes(earlier)
        if model.exceeds(earlier_model, TREND_CONFIDENCE_LEVEL) and earlier_simulator.exceeds(
            simulator, TREND_CONFIDENCE_LEVEL
        ):
            return (
                f"success according to the model has risen, from {earlier_model} training episodes to {model}; success "
                f"according to the simulator has fallen, from {earlier_simulator} evaluation episodes to {simulator}"
            )
    return None


class _SuccessCount(NamedTuple):
    """Number of successes and of episodes."""

    successes: int
    episodes: int

    def exceeds(self, other: _SuccessCount, confidence: float, margin: float = 0.0) -> bool:
        """Return whether this rate is significantly above the other one plus the margin."""
        return self.interval(confidence)[0] > other.interval(confidence)[1] + margin

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return the Wilson interval."""
        return wilson_interval(self.successes, self.episodes, confidence)

    def __str__(self) -> str:
        return f"{self.successes} of {self.episodes}"


def _model_successes(rows: Sequence[RowMapping]) -> _SuccessCount:
    """Return the successes of training episodes according to the model."""
    return _SuccessCount(sum(row["predicted_successes"] for row in rows), sum(row["episodes"] for row in rows))


def _simulator_successes(rows: Sequence[RowMapping]) -> _SuccessCount:
    """Return the mean successes of evaluation episodes per iteration, according to the simulator.

    All iterations evaluate the same starts, so pooled episodes would not be independent.
    """
    means = (round(sum(row[name] for row in rows) / len(rows)) for name in ("eval_successes", "eval_episodes"))
    return _SuccessCount(*means)
