"""What a learned reward did, counted between two updates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from typing import Any

from embodied_rm.distributed import DistContext

PHASES = ("physics", "render", "score", "act", "learn")
"""Where the time of an iteration goes; acting is also storing and paying."""
HOVER_POTENTIAL = 0.7
"""Potential from which an episode that ends by the time limit, no success, hovers: it had most of the way behind it."""


@dataclass
class RolloutStats:
    """What happened since the last `RewardEnv.drain`, and where the time went."""

    env_steps: int = 0
    """Environment steps, all rows."""
    episodes: int = 0
    """Episodes that ended, faults left out."""
    successes: int = 0
    """Episodes ended as a success, by whoever says so."""
    predicted_successes: int = 0
    """Episodes in whose last state the model's verdict is sustained."""
    simulator_successes: int = 0
    """Episodes in whose last state the simulator says success: to learn from only where that was asked for."""
    hover_episodes: int = 0
    """Episodes that ended at the time limit, no success, with a potential of `HOVER` or more."""
    final_potential: float = 0.0
    """Sum over the ended episodes of the potential of the last state, a success counting as 1."""
    diverged_episodes: int = 0
    """Episodes dropped because the simulation diverged."""
    shaped_return: float = 0.0
    """Sum of the undiscounted returns of the ended episodes; of the whole rollout, where that is paid at its end."""
    num_scores: int = 0
    invalid_scores: int = 0
    """Scores that the model could not give."""
    positive_scores: int = 0
    """Valid scores that said "done"."""
    uncertainty: float = 0.0
    """Sum of the valid scores' spread."""
    ood_scored: int = 0
    """Scores that told how unusual the state is."""
    ood_frames: int = 0
    """Of these, out of distribution: above 1."""
    dead_views: dict[str, int] = field(default_factory=dict)
    """View -> scored frames in which it showed nothing."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def sum_over_processes(self, dist: DistContext) -> RolloutStats:
        """Everybody's counts added up, with the seconds of the slowest."""
        return (
            self
            if dist.world_size == 1
            else reduce(add_stats, (RolloutStats(**stats) for stats in dist.all_gather_object(asdict(self))))
        )

    @contextmanager
    def time_phase(self, phase: str) -> Iterator[None]:
        start_time = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start_time


def add_stats(first: RolloutStats, second: RolloutStats) -> RolloutStats:
    """The counts of two processes that worked side by side."""
    count_names = {f.name for f in fields(first)} - {"dead_views", "seconds"}
    totals: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in count_names}
    views = {name: first.dead_views.get(name, 0) + count for name, count in second.dead_views.items()}
    seconds = {phase: max(duration, second.seconds[phase]) for phase, duration in first.seconds.items()}
    return RolloutStats(**totals, dead_views={**first.dead_views, **views}, seconds=seconds)
