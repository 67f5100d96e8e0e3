"""Whether a policy learns to please the reward model instead of doing the task.

The simulator's success is looked at, never paid, and on episodes that the model does not end: one that it ends as a
success may have been a moment short of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from embodied_rm.metrics import wilson_interval

WINDOW = 3
"""Iterations that are looked at together."""
MARGIN = 0.1
"""How much more often the model may call an episode a success than the watched ones are: it may be a step early."""
CONFIDENCE = 0.99
"""Of the two intervals that must not meet."""
UNFOUNDED = 0.2
"""Share of episodes that an honest model, unsure of what is nearly done, may call a success that never is one: the one
in the box comes to 0.2 in `push_to_zone`, and to 0.06 in six other tasks."""
PARTED = 0.95
"""Of those, where two things must have happened at once."""

Row = Mapping[str, Any]


def alarm(rows: Sequence[Row]) -> str | None:
    """What is wrong, in one sentence; None: nothing that shows. `rows`: those of `progress.jsonl` so far.

    In those that are not `ripe` only successes can have ended: their verdicts do not count.

    Rings when the model sees successes that the simulator, asked in the same episodes, never does; when it calls
    training episodes a success that the policy, watched by the simulator, does not reach; both beyond what chance does
    to so many episodes; when the model's success has risen since some time before, and the simulator's has fallen; and
    when a camera shows nothing.
    """
    now, ripe = rows[-WINDOW:], [row for row in rows if row["ripe"]]
    return _blind(now) or _unfounded(now) or _unshared(ripe[-WINDOW:]) or _parted(ripe)


def _blind(now: Sequence[Row]) -> str | None:
    dead = {name: sum(row["dead_views"].get(name, 0) for row in now) for row in now for name in row["dead_views"]}
    scored = sum(row["scored"] for row in now)
    name, count = max(dead.items(), key=lambda item: item[1], default=("", 0))
    if 2 * count > scored:
        return f"the view {name} showed one colour in {count} of {scored} scored frames: is its camera alive?"
    return None


def _unfounded(now: Sequence[Row]) -> str | None:
    alone = _Share(*(sum(row[name] for row in now) for name in ("unfounded", "checked")))
    if alone.whole and alone.interval(CONFIDENCE)[0] > UNFOUNDED:
        return f"in {alone} episodes beside the training the model saw a success that the simulator never did"
    return None


def _unshared(now: Sequence[Row]) -> str | None:
    if not now or not now[-1]["watched"]:
        return None
    said, true = _said(now), _true(now)
    if said.above(true, CONFIDENCE, MARGIN):
        return (
            f"{said} training episodes are a success in the eyes of the model, "
            f"{true} watched ones in those of the simulator"
        )
    return None


def _parted(rows: Sequence[Row]) -> str | None:
    """Whether now and some window before it are told apart by both, and not the same way round."""
    if len(rows) < 2 * WINDOW or not rows[-1]["watched"]:
        return None
    said, true = _said(rows[-WINDOW:]), _true(rows[-WINDOW:])
    for end in range(WINDOW, len(rows) - WINDOW + 1):
        said_then, true_then = _said(rows[end - WINDOW : end]), _true(rows[end - WINDOW : end])
        if said.above(said_then, PARTED) and true_then.above(true, PARTED):
            return (
                f"in the eyes of the model success has risen, from {said_then} training episodes to {said}, in those "
                f"of the simulator it has fallen, from {true_then} watched ones to {true}"
            )
    return None


class _Share(NamedTuple):
    """Successes among episodes."""

    part: int
    whole: int

    def above(self, other: _Share, confidence: float, margin: float = 0.0) -> bool:
        """Whether this is more than the other and the margin, and not by chance."""
        return self.interval(confidence)[0] > other.interval(confidence)[1] + margin

    def interval(self, confidence: float) -> tuple[float, float]:
        """Wilson's."""
        return wilson_interval(self.part, self.whole, confidence)

    def __str__(self) -> str:
        return f"{self.part} of {self.whole}"


def _said(rows: Sequence[Row]) -> _Share:
    """By the model, of the training episodes."""
    return _Share(sum(row["learned_successes"] for row in rows), sum(row["episodes"] for row in rows))


def _true(rows: Sequence[Row]) -> _Share:
    """By the simulator, of those watched. The same starts are watched again and again: three times as many successes
    are not three times as sure."""
    return _Share(*(round(sum(row[name] for row in rows) / len(rows)) for name in ("watched_successes", "watched")))
