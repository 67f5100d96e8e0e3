"""How fast three PPO learners are where the environment costs nothing: python benchmarks/ppo_speed.py

Rollouts and updates at equal networks and settings, in turn; medians. On one core, and on all there are: ours then
trains actor and critic side by side where minibatches are worth it, the others have as many threads of torch as suits
them best. Needs `pip install -e .[bench]`. Writes docs/results/ppo_speed.md.
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
from ppo_learners import EQUAL, LEARNERS, Settings

from embodied_rm.cli.benchmarks import machine

SETTINGS = Settings(rollout=60, minibatches=16, epochs=8, hidden=(128, 128))
OBSERVED, ACTED, LENGTH, ITERATIONS = 24, 4, 60, 5
ASKED = {16: 2.0, 64: 1.7}
"""Environments -> how many times as fast as each of the others ours is to be."""


class Noise(VectorEnv):
    """Observations and rewards without meaning, drawn beforehand; all episodes end together, by the time limit."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    max_episode_steps = LENGTH

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (OBSERVED,), np.float32)
        self.single_action_space = gym.spaces.Box(-1, 1, (ACTED,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        rng = np.random.default_rng(0)
        self._observation = rng.normal(size=(LENGTH + 1, num_envs, OBSERVED)).astype(np.float32)
        self._reward = rng.normal(size=(LENGTH, num_envs)).astype(np.float32)
        self._yes, self._no, self._flat = np.ones(num_envs, bool), np.zeros(num_envs, bool), np.zeros(num_envs)
        self._time = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._time = 0
        return self._observation[0], {}

    def step(self, actions: Any) -> Any:
        self._time += 1
        final, reward = self._observation[self._time], self._reward[self._time - 1]
        over = self._time == LENGTH
        self._time %= LENGTH
        infos = {"final_obs": final, "valid": self._yes, "potential": self._flat, "next_potential": self._flat}
        return self._observation[self._time], reward, self._no, self._yes if over else self._no, infos


def speeds(num_envs: int, cores: int, rounds: int) -> dict[str, list[float]]:
    """Environment steps per second of each learner, a number a round, with the threads that suit it best."""
    threads = {name: {1} if name == "ours" else {1, cores} for name in LEARNERS}
    tried: dict[str, dict[int, list[float]]] = {name: {n: [] for n in some} for name, some in threads.items()}
    for _ in range(rounds):
        for name, by_threads in tried.items():
            for count, values in by_threads.items():
                torch.set_num_threads(count)
                values.append(speed(LEARNERS[name], num_envs))
                logging.info("%d envs, %d cores, %s, %d threads: %.0f/s", num_envs, cores, name, count, values[-1])
    return {name: max(by_threads.values(), key=median) for name, by_threads in tried.items()}


def speed(learn: Callable[..., object], num_envs: int) -> float:
    """Environment steps per second: of that many iterations more than one."""
    seconds = []
    for iterations in (1, 1 + ITERATIONS):
        start = time.perf_counter()
        learn(Noise(num_envs), SETTINGS, iterations, 0)
        seconds.append(time.perf_counter() - start)
    return ITERATIONS * SETTINGS.rollout * num_envs / (seconds[1] - seconds[0])


def report(found: dict[tuple[int, int], dict[str, list[float]]], rounds: int) -> str:
    """The page for docs/results. `found`: (environments, cores) -> learner -> a number a round."""
    lines = [
        "# PPO speed",
        "",
        f"Environment steps per second, rollouts and updates together, of an environment that costs nothing; median of "
        f"{rounds} rounds in turn. On more than one core ours trains actor and critic side by side where minibatches "
        f"are worth it, and each of the others has one thread of torch or as many as there are cores, whichever is "
        f"faster. {machine()}.",
        "",
        f"    python benchmarks/ppo_speed.py --rounds {rounds}",
        "",
        "| environments | cores | learner | steps per second | ours is faster by | asked |",
        "|---|---|---|---|---|---|",
    ]
    for (num_envs, cores), learners in found.items():
        best = median(learners["ours"])
        for name, values in learners.items():
            pairs = zip(learners["ours"], values, strict=True)
            times = "" if name == "ours" else f"{median(mine / theirs for mine, theirs in pairs):.2f}"
            asked = "" if name == "ours" else f"{ASKED[num_envs]}"
            shown = best if name == "ours" else median(values)
            lines.append(f"| {num_envs} | {cores} | {name} | {shown:,.0f} | {times} | {asked} |")
    return "\n".join([*lines, "", f"{SETTINGS}.", "", EQUAL, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each learner")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ppo_speed.md"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    everything = sorted(os.sched_getaffinity(0))
    found: dict[tuple[int, int], dict[str, list[float]]] = {}
    for cores in sorted({1, len(everything)}):
        os.sched_setaffinity(0, everything[:cores])
        found |= {(num_envs, cores): speeds(num_envs, cores, args.rounds) for num_envs in ASKED}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(dict(sorted(found.items())), args.rounds))


if __name__ == "__main__":
    main()
