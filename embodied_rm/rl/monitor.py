"""Whether a policy learns to please the reward model instead of doing the task.

The simulator's success is looked at, never paid, and on episodes that the model has no say in: one that it ends as a
success may have been a moment short of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embodied_rm.metrics import wilson_interval

WINDOW = 3
"""Iterations that are looked at together."""
MARGIN = 0.1
"""How much more often the model may call an episode a success than the watched ones are: it may be a step early."""
CONFIDENCE = 0.99

Row = Mapping[str, Any]


def alarm(rows: Sequence[Row], unripe: int = 0) -> str | None:
    """What is wrong, in one sentence; None: nothing that shows. `rows`: those of `progress.jsonl` so far.

    In the first `unripe` of them, shorter than an episode may be, only successes can have ended: their verdicts do not
    count.

    Rings when the model calls training episodes a success that the policy, watched by the simulator, does not reach,
    beyond what chance does to so many episodes; and when a camera shows nothing.
    """
    now = rows[-WINDOW:]
    return _blind(now) or _unshared(rows[unripe:][-WINDOW:])


def _blind(now: Sequence[Row]) -> str | None:
    dead = {name: sum(row["dead_views"].get(name, 0) for row in now) for row in now for name in row["dead_views"]}
    scored = sum(row["scored"] for row in now)
    name, count = max(dead.items(), key=lambda item: item[1], default=("", 0))
    if 2 * count > scored:
        return f"the view {name} showed one colour in {count} of {scored} scored frames: is its camera alive?"
    return None


def _unshared(now: Sequence[Row]) -> str | None:
    said, episodes = _counted(now, "learned_successes", "episodes")
    if not now:
        return None
    # The same starts are watched again and again: three times as many successes are not three times as sure.
    true, watched = (round(count / len(now)) for count in _counted(now, "watched_successes", "watched"))
    if watched == 0:
        return None
    if wilson_interval(said, episodes, CONFIDENCE)[0] > wilson_interval(true, watched, CONFIDENCE)[1] + MARGIN:
        return (
            f"{said} of {episodes} training episodes are a success in the eyes of the model, "
            f"{true} of {watched} watched ones in those of the simulator"
        )
    return None


def _counted(rows: Sequence[Row], part: str, whole: str) -> tuple[int, int]:
    return sum(row[part] for row in rows), sum(row[whole] for row in rows)
