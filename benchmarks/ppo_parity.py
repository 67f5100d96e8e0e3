"""Our PPO against Stable-Baselines3's and rsl-rl's, what they learn at equal settings: python benchmarks/ppo_parity.py

Two of Gymnasium's tasks, one thread; needs `pip install -e .[bench]`. Writes docs/results/ppo_parity.md.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from ppo_learners import EQUAL, LEARNERS, Act, Settings, worlds
from scipy import stats

from embodied_rm.cli.benchmarks import machine

ENVS, STEPS = 16, 100_000
TASKS = {
    "Pendulum-v1": Settings(rollout=256, minibatches=64, epochs=10, gamma=0.9),
    "InvertedPendulum-v5": Settings(rollout=128, minibatches=32, epochs=10, gamma=0.98, learning_rate=3e-4),
}
EPISODES = 100


def mean_return(task: str, act: Act) -> float:
    """Mean undiscounted return of episodes with fixed seeds, by the mean action."""
    env = SyncVectorEnv([lambda: gym.make(task)] * EPISODES, autoreset_mode=AutoresetMode.DISABLED)
    observation, _ = env.reset(seed=10_000)
    total, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
    space = env.single_action_space
    assert isinstance(space, gym.spaces.Box)
    while running.any():
        observation, reward, terminated, truncated, _ = env.step(np.clip(act(observation), space.low, space.high))
        total += np.where(running, reward, 0.0)
        ended = terminated | truncated
        running &= ~ended
        if ended.any() and running.any():
            observation, _ = env.reset(options={"reset_mask": ended})
    return float(total.mean())


def interval(values: list[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def gained(ours: list[float], theirs: list[float]) -> str:
    """How much more ours returns, with Welch's 95 % interval over seeds."""
    if np.ptp([*ours, *theirs]) == 0.0:
        return "0.0"  # Welch's interval of equal constants is 0 / 0
    bounds = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    return f"{np.mean(ours) - np.mean(theirs):+.1f} [{bounds.low:+.1f}, {bounds.high:+.1f}]"


def report(returns: dict[str, dict[str, list[float]]]) -> str:
    """The page for docs/results."""
    seeds = len(next(iter(returns.values()))["ours"])
    lines = [
        "# PPO parity",
        "",
        f"Three PPO learners at equal settings, {STEPS:,} steps of {ENVS} environments, {seeds} seeds each: mean "
        f"return of {EPISODES} episodes with the mean action. One thread; {machine()}.",
        "",
        f"    python benchmarks/ppo_parity.py --seeds {seeds}",
        "",
        "| task | learner | mean return | 95 % interval of the mean | ours more than that (Welch, 95 %) | each seed |",
        "|---|---|---|---|---|---|",
    ]
    for task, learners in returns.items():
        for name, values in learners.items():
            low, high = interval(values)
            each = ", ".join(f"{value:.0f}" for value in values)
            more = "" if name == "ours" else gained(learners["ours"], values)
            lines.append(f"| {task} | {name} | {np.mean(values):.1f} | [{low:.1f}, {high:.1f}] | {more} | {each} |")
    for task, settings in TASKS.items():
        lines += ["", f"{task}: {settings}."]
    return "\n".join([*lines, "", EQUAL, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each learner on each task")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ppo_parity.md"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    returns: dict[str, dict[str, list[float]]] = {task: {name: [] for name in LEARNERS} for task in TASKS}
    for seed in range(args.seeds):
        for task, settings in TASKS.items():
            for name, learn in LEARNERS.items():
                iterations = -(-STEPS // (ENVS * settings.rollout))
                act = learn(worlds(task, ENVS), settings, iterations, seed)
                returns[task][name].append(mean_return(task, act))
                logging.info("seed %d, %s, %s: return %.1f", seed, task, name, returns[task][name][-1])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(returns))


if __name__ == "__main__":
    main()
