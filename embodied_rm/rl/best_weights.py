"""Weights of the policy with the most successes, which a refinement returns if its last policy has clearly fewer."""

from __future__ import annotations

from typing import NamedTuple

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.metrics.statistics import wilson_interval
from embodied_rm.rl.learner.policy import GaussianPolicy, load_policy, save_policy
from embodied_rm.rl.watch.log_rows import LogRow
from embodied_rm.run_folder import RunFolder

BEST_DIR = "best"
WINDOW_ITERATIONS = 3


class Window(NamedTuple):
    """Successes of the training episodes of the `WINDOW_ITERATIONS` that end with `iteration`."""

    iteration: int
    successes: int
    episodes: int

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the success rate."""
        return wilson_interval(self.successes, self.episodes)


def success_windows(rows: list[LogRow], max_episode_steps: int | None, first: int = 0) -> list[Window]:
    """Return all windows of iterations from `first` on.

    Args:
        rows: Rows of all iterations.
        max_episode_steps: Time limit of an episode; None: unknown. A success ends before the limit, and failures that
            began together end together, perhaps in the next window. So a window has at least as many episodes as the
            limit allows in its steps.
        first: First iteration whose successes can be compared.
    """
    windows = []
    for end in range(first + WINDOW_ITERATIONS, len(rows) + 1):
        part = rows[end - WINDOW_ITERATIONS : end]
        ended = sum(row["episodes"] for row in part)
        steps = sum(row["start_steps" if "start_steps" in row else "env_steps"] for row in part)
        fewest = steps // max_episode_steps if max_episode_steps else 0
        if episodes := max(ended, fewest):
            successes = sum(round(row["success"] * row["episodes"]) for row in part if row["episodes"])
            windows.append(Window(end - 1, successes, episodes))
    return windows


def best_window(rows: list[LogRow], max_episode_steps: int | None, first: int = 0) -> Window | None:
    """Return the first window with the largest lower bound of its success rate; None: there is no window."""
    windows = success_windows(rows, max_episode_steps, first)
    return max(windows, key=lambda window: window.interval[0], default=None)


def iteration_to_restore(rows: list[LogRow], max_episode_steps: int | None, first: int = 0) -> int | None:
    """Return the last iteration of the best window, if its interval lies above that of the last window; else None."""
    best = best_window(rows, max_episode_steps, first)
    if best is None:
        return None
    last = success_windows(rows, max_episode_steps, first)[-1]
    return best.iteration if best.interval[0] > last.interval[1] else None


def describe_restored(iteration: int | None) -> str:
    """Return a sentence on what was restored."""
    if iteration is None:
        return "the last policy is kept: no earlier one had clearly more successes"
    return f"the policy of iteration {iteration} is restored: later ones have clearly fewer successes"


class BestWeights:
    """The policy that acted in the last iteration of the best window, in memory and in a folder."""

    def __init__(self, run: RunFolder, max_episode_steps: int | None, *, writes: bool) -> None:
        """Read the policy of an interrupted run. `writes`: whether this process writes the folder."""
        self._folder, self._writes, self._max_episode_steps = run.path / BEST_DIR, writes, max_episode_steps
        self._policy = load_policy(self._folder) if (self._folder / MANIFEST_NAME).exists() else None

    def keep(self, acted: GaussianPolicy, rows: list[LogRow], first: int = 0) -> None:
        """Keep the policy that acted in the last iteration, if the best window ends with it.

        Args:
            acted: Its copy.
            rows: Rows of all iterations so far.
            first: First iteration whose successes can be compared.
        """
        best = best_window(rows, self._max_episode_steps, first)
        if best is None or best.iteration != len(rows) - 1:
            return
        self._policy = acted
        if self._writes:
            save_policy(self._folder, acted)

    def restore(self, policy: GaussianPolicy, rows: list[LogRow], first: int = 0) -> int | None:
        """Give the policy its best weights, if it has clearly fewer successes; return their iteration, else None."""
        iteration = iteration_to_restore(rows, self._max_episode_steps, first)
        if iteration is not None:
            assert self._policy is not None, "the policy of a window is kept when the window is the best"
            policy.load_state_dict(self._policy.state_dict())
        return iteration
