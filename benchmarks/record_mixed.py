"""Recordings of mixed quality by the command line, as `embodied_rm.experiments.mixed_recordings` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cli_process import run_once


def record_mixed(folder: Path, task: str, seed: int, env_args: Sequence[str]) -> Path:
    """Record demonstrations, half of them failures, and noisy rollouts of a policy of five of them.

    Args:
        folder: Where the runs are.
        task: The task.
        seed: Of all recordings and of the policy.
        env_args: Arguments of the environments.

    Returns:
        The run folder of the recordings.
    """
    counts = ["num_successes=10", "num_failures=10", "action_noise=0.1", "speed_range=[1.0,1.0]"]
    common = ["collect", f"tasks=[{task}]", *counts, f"seed={seed}", *env_args]
    demonstrations = run_once(folder / "demonstrations", common)
    behavior = [f"task={task}", f"data={demonstrations}", "num_demonstrations=5", "eval_episodes=1", f"seed={seed}"]
    policy = run_once(folder / "behavior", ["clone", *behavior, *env_args])
    return run_once(folder / "mixed", [*common, f"policies=[{policy}]", "rollouts_per_policy=40"])
