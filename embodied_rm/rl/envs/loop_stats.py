"""What a learned reward did, counted between two updates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from typing import Any

from embodied_rm.group import Group

STAGES = ("physics", "render", "score", "act", "learn")
"""Where the time of an iteration goes; acting is also storing and paying."""
HOVER = 0.7
"""Potential from which an episode that ends by the time limit, no success, hovers: it had most of the way behind it."""


@dataclass
class LoopStats:
    """What happened since the last `RewardEnv.drain`, and where the time went."""

    steps: int = 0
    """Environment steps, all rows."""
    episodes: int = 0
    """Episodes that ended, faults left out."""
    successes: int = 0
    """Episodes ended as a success, by whoever says so."""
    learned_successes: int = 0
    """Episodes in whose last state the model's verdict is sustained."""
    simulator_successes: int = 0
    """Episodes in whose last state the simulator says success: to learn from only where that was asked for."""
    hovers: int = 0
    """Episodes that ended at the time limit, no success, with a potential of `HOVER` or more."""
    height: float = 0.0
    """Sum over the ended episodes of the potential of the last state, a success counting as 1."""
    faults: int = 0
    """Episodes dropped because the simulation diverged."""
    shaped_return: float = 0.0
    """Sum of the undiscounted returns of the ended episodes; of the whole rollout, where that is paid at its end."""
    scored: int = 0
    invalid: int = 0
    """Scores that the model could not give."""
    verdicts: int = 0
    """Valid scores that said "done"."""
    spread: float = 0.0
    """Sum of the valid scores' spread."""
    known: int = 0
    """Scores that told how unusual the state is."""
    unusual: int = 0
    """Of these, out of distribution: above 1."""
    dead_views: dict[str, int] = field(default_factory=dict)
    """View -> scored frames in which it showed nothing."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))

    def shared(self, group: Group) -> LoopStats:
        """Everybody's counts added up, with the seconds of the slowest."""
        return self if group.size == 1 else reduce(added, (LoopStats(**one) for one in group.say(asdict(self))))

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - start


def added(one: LoopStats, other: LoopStats) -> LoopStats:
    """The counts of two processes that worked side by side."""
    counts = {f.name for f in fields(one)} - {"dead_views", "seconds"}
    totals: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in counts}
    views = {name: one.dead_views.get(name, 0) + count for name, count in other.dead_views.items()}
    seconds = {stage: max(spent, other.seconds[stage]) for stage, spent in one.seconds.items()}
    return LoopStats(**totals, dead_views={**one.dead_views, **views}, seconds=seconds)
