"""Statistics of a rollout with a learned reward."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from typing import Any

from embodied_rm.distributed import DistContext

PHASES = ("physics", "render", "score", "act", "learn")
"""Phases of an iteration whose time is measured; `act` includes storing transitions and computing rewards."""
HOVER_POTENTIAL = 0.7  # final potential from which an episode that ends at the time limit counts as hovering


@dataclass
class RolloutStats:
    """Counts and seconds since the last `RewardEnv.pop_stats`."""

    env_steps: int = 0  # environment steps of all rows
    start_steps: int = 0  # those of episodes from a start, not from a state of the archive
    episodes: int = 0  # episodes from a start that ended, without diverged ones
    returned_episodes: int = 0  # episodes from a state of the archive that ended; only the costs count them
    helped_episodes: int = 0  # episodes among them in which a helper acted; they are no successes of the policy
    successes: int = 0  # episodes that ended as a success, according to `success_source`
    predicted_successes: int = 0  # episodes whose last state is a success according to the model
    simulator_successes: int = 0  # episodes whose last state is a success according to the simulator
    hover_episodes: int = 0  # episodes that ended at the time limit with a potential of at least `HOVER_POTENTIAL`
    final_potential: float = 0.0  # sum of the final potentials of the ended episodes; a success counts as 1
    diverged_episodes: int = 0  # episodes dropped because the simulation diverged
    shaped_return: float = 0.0
    """Sum of the undiscounted returns of the ended episodes; for rules of whole rollouts, within the rollout."""
    num_scores: int = 0
    invalid_scores: int = 0  # scores that are not valid
    positive_scores: int = 0  # valid scores whose success probability reached the threshold
    uncertainty: float = 0.0  # sum of the uncertainties of the valid scores
    ood_scored: int = 0  # scores with an out-of-distribution value
    ood_frames: int = 0  # scores that are out of distribution: a value above 1
    dead_views: dict[str, int] = field(default_factory=dict)  # view -> scored frames in which its image had one color
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    def sum_over_processes(self, dist: DistContext) -> RolloutStats:
        """Return the summed counts of all processes, with the seconds of the slowest one."""
        if dist.world_size == 1:
            return self
        return reduce(add_stats, (RolloutStats(**stats) for stats in dist.all_gather_object(asdict(self))))

    @contextmanager
    def time_phase(self, phase: str) -> Iterator[None]:
        """Add the time inside the context to a phase."""
        start_time = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - start_time


def add_stats(first: RolloutStats, second: RolloutStats) -> RolloutStats:
    """Return the summed counts of two parallel processes, with the longer seconds of each phase."""
    count_names = {f.name for f in fields(first)} - {"dead_views", "seconds"}
    totals: dict[str, Any] = {name: getattr(first, name) + getattr(second, name) for name in count_names}
    views = {name: first.dead_views.get(name, 0) + count for name, count in second.dead_views.items()}
    seconds = {phase: max(duration, second.seconds[phase]) for phase, duration in first.seconds.items()}
    return RolloutStats(**totals, dead_views={**first.dead_views, **views}, seconds=seconds)
