"""Speed of three PPO implementations with a free environment: python benchmarks/ppo_speed.py

Medians of interleaved rollouts and updates with equal networks and settings, on one core and on all cores. On several
cores, this package trains actor and critic in parallel for large minibatches; the others use the better of one torch
thread and one per core. Needs `pip install -e .[bench]`. Writes docs/results/ppo_speed.md.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from ppo_learners import DIFFERENCES_NOTE, LEARNERS, PPOSettings

from embodied_rm.experiments.results_page import describe_machine

PPO_SETTINGS = PPOSettings(rollout_steps=60, minibatches=16, epochs=8, hidden=(128, 128))
OBS_DIM, ACTION_DIM, EPISODE_STEPS, NUM_ITERATIONS = 24, 4, 60, 5
TARGET_SPEEDUPS = {16: 2.0, 64: 1.7}
"""Environments -> required speedup over each of the others."""


class NoiseVecEnv(VectorEnv):
    """Precomputed random observations and rewards; all episodes end together at the time limit."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    max_episode_steps = EPISODE_STEPS

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS_DIM,), np.float32)
        self.single_action_space = gym.spaces.Box(-1, 1, (ACTION_DIM,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        rng = np.random.default_rng(0)
        self._observation = rng.normal(size=(EPISODE_STEPS + 1, num_envs, OBS_DIM)).astype(np.float32)
        self._reward = rng.normal(size=(EPISODE_STEPS, num_envs)).astype(np.float32)
        self._all_true = np.ones(num_envs, bool)
        self._all_false = np.zeros(num_envs, bool)
        self._zeros = np.zeros(num_envs)
        self._step_index = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._step_index = 0
        return self._observation[0], {}

    def step(self, actions: Any) -> Any:
        self._step_index += 1
        final_obs, reward = self._observation[self._step_index], self._reward[self._step_index - 1]
        is_last = self._step_index == EPISODE_STEPS
        self._step_index %= EPISODE_STEPS
        infos = {
            "final_obs": final_obs,
            "valid_transition": self._all_true,
            "potential": self._zeros,
            "next_potential": self._zeros,
        }
        return (
            self._observation[self._step_index],
            reward,
            self._all_false,
            self._all_true if is_last else self._all_false,
            infos,
        )


def measure_speeds(num_envs: int, cores: int, rounds: int) -> dict[str, list[float]]:
    """Return the environment steps per second of each learner and round, with its best number of threads."""
    thread_counts = {name: {1} if name == "ours" else {1, cores} for name in LEARNERS}
    speeds_by_threads: dict[str, dict[int, list[float]]] = {
        name: {n: [] for n in counts} for name, counts in thread_counts.items()
    }
    for _ in range(rounds):
        for name, by_threads in speeds_by_threads.items():
            for count, values in by_threads.items():
                torch.set_num_threads(count)
                values.append(measure_speed(LEARNERS[name], num_envs))
                logging.info("%d envs, %d cores, %s, %d threads: %.0f/s", num_envs, cores, name, count, values[-1])
    return {name: max(by_threads.values(), key=median) for name, by_threads in speeds_by_threads.items()}


def measure_speed(train: Callable[..., object], num_envs: int) -> float:
    """Return the environment steps per second, without the first iteration."""
    seconds = []
    for iterations in (1, 1 + NUM_ITERATIONS):
        start = time.perf_counter()
        train(NoiseVecEnv(num_envs), PPO_SETTINGS, iterations, 0)
        seconds.append(time.perf_counter() - start)
    return NUM_ITERATIONS * PPO_SETTINGS.rollout_steps * num_envs / (seconds[1] - seconds[0])


def report(results: dict[tuple[int, int], dict[str, list[float]]], rounds: int) -> str:
    """Return the page for docs/results. `results`: (environments, cores) -> learner -> speed per round."""
    lines = [
        "# PPO speed",
        "",
        f"Environment steps per second of rollouts and updates with a free environment; median of {rounds} interleaved "
        f"rounds. On several cores ours trains actor and critic in parallel for large minibatches; the others use one "
        f"torch thread or one per core, whichever is faster. {describe_machine()}.",
        "",
        f"    python benchmarks/ppo_speed.py --rounds {rounds}",
        "",
        "| environments | cores | learner | steps per second | speedup of ours | target |",
        "|---|---|---|---|---|---|",
    ]
    for (num_envs, cores), learners in results.items():
        our_speed = median(learners["ours"])
        for name, values in learners.items():
            pairs = zip(learners["ours"], values, strict=True)
            speedup = (
                "" if name == "ours" else f"{median(our_value / other_value for our_value, other_value in pairs):.2f}"
            )
            target = "" if name == "ours" else f"{TARGET_SPEEDUPS[num_envs]}"
            speed = our_speed if name == "ours" else median(values)
            lines.append(f"| {num_envs} | {cores} | {name} | {speed:,.0f} | {speedup} | {target} |")
    return "\n".join([*lines, "", f"{PPO_SETTINGS}.", "", DIFFERENCES_NOTE, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="measurements per learner")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ppo_speed.md"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    all_cores = sorted(os.sched_getaffinity(0))
    results: dict[tuple[int, int], dict[str, list[float]]] = {}
    for cores in sorted({1, len(all_cores)}):
        os.sched_setaffinity(0, all_cores[:cores])
        results |= {(num_envs, cores): measure_speeds(num_envs, cores, args.rounds) for num_envs in TARGET_SPEEDUPS}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(dict(sorted(results.items())), args.rounds))


if __name__ == "__main__":
    main()
