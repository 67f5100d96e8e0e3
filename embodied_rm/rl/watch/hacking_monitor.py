"""Whether a policy learns to please the reward model instead of doing the task.

The simulator's success is looked at, never paid, and on episodes that the model does not end: one that it ends as a
success may have been a moment short of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from embodied_rm.metrics import wilson_interval

WINDOW_ITERATIONS = 3
"""Iterations that are looked at together."""
SUCCESS_RATE_MARGIN = 0.1
"""How much more often the model may call an episode a success than the watched ones are: it may be a step early."""
CONFIDENCE_LEVEL = 0.99
"""Of the two intervals that must not meet."""
MAX_FALSE_CLAIM_RATE = 0.2
"""Share of episodes that an honest model, unsure of what is nearly done, may call a success that never is one: the one
in the box comes to 0.2 in `push_to_zone`, and to 0.06 in six other tasks."""
TREND_CONFIDENCE_LEVEL = 0.95
"""Of those, where two things must have happened at once."""

RowMapping = Mapping[str, Any]


def detect_reward_hacking(rows: Sequence[RowMapping]) -> str | None:
    """What is wrong, in one sentence; None: nothing that shows. `rows`: those of `progress.jsonl` so far.

    In those that are not `ripe` only successes can have ended: their verdicts do not count.

    Rings when the model sees successes that the simulator, asked in the same episodes, never does; when it calls
    training episodes a success that the policy, watched by the simulator, does not reach; both beyond what chance does
    to so many episodes; when the model's success has risen since some time before, and the simulator's has fallen; and
    when a camera shows nothing.
    """
    recent, full_rows = rows[-WINDOW_ITERATIONS:], [row for row in rows if row["has_full_episodes"]]
    return (
        _check_dead_views(recent)
        or _check_false_claims(recent)
        or _check_success_gap(full_rows[-WINDOW_ITERATIONS:])
        or _check_opposite_trends(full_rows)
    )


def _check_dead_views(recent: Sequence[RowMapping]) -> str | None:
    dead_frames = {
        name: sum(row["dead_views"].get(name, 0) for row in recent) for row in recent for name in row["dead_views"]
    }
    scored = sum(row["num_scores"] for row in recent)
    name, count = max(dead_frames.items(), key=lambda item: item[1], default=("", 0))
    if 2 * count > scored:
        return f"the view {name} showed one color in {count} of {scored} scored frames: is its camera alive?"
    return None


def _check_false_claims(recent: Sequence[RowMapping]) -> str | None:
    false_claims = _SuccessCount(*(sum(row[name] for row in recent) for name in ("false_claims", "verification_episodes")))
    if false_claims.episodes and false_claims.interval(CONFIDENCE_LEVEL)[0] > MAX_FALSE_CLAIM_RATE:
        return f"in {false_claims} episodes beside the training the model saw a success that the simulator never did"
    return None


def _check_success_gap(recent: Sequence[RowMapping]) -> str | None:
    if not recent or not recent[-1]["eval_episodes"]:
        return None
    model, simulator = _model_successes(recent), _simulator_successes(recent)
    if model.exceeds(simulator, CONFIDENCE_LEVEL, SUCCESS_RATE_MARGIN):
        return (
            f"{model} training episodes are a success in the eyes of the model, "
            f"{simulator} watched ones in those of the simulator"
        )
    return None


def _check_opposite_trends(rows: Sequence[RowMapping]) -> str | None:
    """Whether now and some window before it are told apart by both, and not the same way round."""
    if len(rows) < 2 * WINDOW_ITERATIONS or not rows[-1]["eval_episodes"]:
        return None
    model, simulator = _model_successes(rows[-WINDOW_ITERATIONS:]), _simulator_successes(rows[-WINDOW_ITERATIONS:])
    for end in range(WINDOW_ITERATIONS, len(rows) - WINDOW_ITERATIONS + 1):
        earlier_model, earlier_simulator = (
            _model_successes(rows[end - WINDOW_ITERATIONS : end]),
            _simulator_successes(rows[end - WINDOW_ITERATIONS : end]),
        )
        if model.exceeds(earlier_model, TREND_CONFIDENCE_LEVEL) and earlier_simulator.exceeds(
            simulator, TREND_CONFIDENCE_LEVEL
        ):
            return (
                f"in the eyes of the model success has risen, from {earlier_model} training episodes to {model}, in those "
                f"of the simulator it has fallen, from {earlier_simulator} watched ones to {simulator}"
            )
    return None


class _SuccessCount(NamedTuple):
    """Successes among episodes."""

    successes: int
    episodes: int

    def exceeds(self, other: _SuccessCount, confidence: float, margin: float = 0.0) -> bool:
        """Whether this is more than the other and the margin, and not by chance."""
        return self.interval(confidence)[0] > other.interval(confidence)[1] + margin

    def interval(self, confidence: float) -> tuple[float, float]:
        """Wilson's."""
        return wilson_interval(self.successes, self.episodes, confidence)

    def __str__(self) -> str:
        return f"{self.successes} of {self.episodes}"


def _model_successes(rows: Sequence[RowMapping]) -> _SuccessCount:
    """By the model, of the training episodes."""
    return _SuccessCount(sum(row["predicted_successes"] for row in rows), sum(row["episodes"] for row in rows))


def _simulator_successes(rows: Sequence[RowMapping]) -> _SuccessCount:
    """By the simulator, of those watched. The same starts are watched again and again: three times as many successes
    are not three times as sure."""
    return _SuccessCount(
        *(round(sum(row[name] for row in rows) / len(rows)) for name in ("eval_successes", "eval_episodes"))
    )
