"""Returns of three PPO implementations with equal settings: python benchmarks/ppo_parity.py

Compares this package with Stable-Baselines3 and rsl-rl on two Gymnasium tasks with one thread. Needs
`pip install -e .[bench]`. Writes docs/results/ppo_parity.md.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from ppo_learners import DIFFERENCES_NOTE, LEARNERS, PolicyFn, PPOSettings, make_envs
from scipy import stats

from embodied_rm.experiments.results_page import describe_machine

NUM_ENVS, NUM_STEPS = 16, 100_000
TASK_SETTINGS = {
    "Pendulum-v1": PPOSettings(rollout_steps=256, minibatches=64, epochs=10, gamma=0.9),
    "InvertedPendulum-v5": PPOSettings(rollout_steps=128, minibatches=32, epochs=10, gamma=0.98, learning_rate=3e-4),
}
NUM_EVAL_EPISODES = 100


def mean_return(task: str, policy: PolicyFn) -> float:
    """Return the mean undiscounted return of episodes with fixed seeds, with the mean action."""
    env = SyncVectorEnv([lambda: gym.make(task)] * NUM_EVAL_EPISODES, autoreset_mode=AutoresetMode.DISABLED)
    observation, _ = env.reset(seed=10_000)
    total, is_running = np.zeros(NUM_EVAL_EPISODES), np.ones(NUM_EVAL_EPISODES, bool)
    space = env.single_action_space
    assert isinstance(space, gym.spaces.Box)
    while is_running.any():
        observation, reward, terminated, truncated, _ = env.step(np.clip(policy(observation), space.low, space.high))
        total += np.where(is_running, reward, 0.0)
        is_done = terminated | truncated
        is_running &= ~is_done
        if is_done.any() and is_running.any():
            observation, _ = env.reset(options={"reset_mask": is_done})
    return float(total.mean())


def mean_confidence_interval(values: list[float]) -> tuple[float, float]:
    """Return Student's 95 % interval of the mean over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def return_difference(ours: list[float], others: list[float]) -> str:
    """Return the difference of mean returns, with Welch's 95 % interval over seeds."""
    if np.ptp([*ours, *others]) == 0.0:
        return "0.0"  # Welch's interval of equal constants is 0 / 0
    bounds = stats.ttest_ind(ours, others, equal_var=False).confidence_interval(0.95)
    return f"{np.mean(ours) - np.mean(others):+.1f} [{bounds.low:+.1f}, {bounds.high:+.1f}]"


def report(returns: dict[str, dict[str, list[float]]]) -> str:
    """Return the page for docs/results."""
    seeds = len(next(iter(returns.values()))["ours"])
    lines = [
        "# PPO parity",
        "",
        f"Three PPO implementations with equal settings, {NUM_STEPS:,} steps of {NUM_ENVS} environments, {seeds} seeds "
        f"each: mean return of {NUM_EVAL_EPISODES} episodes with the mean action. One thread; {describe_machine()}.",
        "",
        f"    python benchmarks/ppo_parity.py --seeds {seeds}",
        "",
        "| task | learner | mean return | 95 % interval of the mean | difference of ours (Welch, 95 %) | per seed |",
        "|---|---|---|---|---|---|",
    ]
    for task, learners in returns.items():
        for name, values in learners.items():
            low, high = mean_confidence_interval(values)
            per_seed = ", ".join(f"{value:.0f}" for value in values)
            difference = "" if name == "ours" else return_difference(learners["ours"], values)
            lines.append(
                f"| {task} | {name} | {np.mean(values):.1f} | [{low:.1f}, {high:.1f}] | {difference} | {per_seed} |"
            )
    for task, settings in TASK_SETTINGS.items():
        lines += ["", f"{task}: {settings}."]
    return "\n".join([*lines, "", DIFFERENCES_NOTE, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="trainings per learner and task")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ppo_parity.md"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    returns: dict[str, dict[str, list[float]]] = {task: {name: [] for name in LEARNERS} for task in TASK_SETTINGS}
    for seed in range(args.seeds):
        for task, settings in TASK_SETTINGS.items():
            for name, train in LEARNERS.items():
                iterations = -(-NUM_STEPS // (NUM_ENVS * settings.rollout_steps))
                policy = train(make_envs(task, NUM_ENVS), settings, iterations, seed)
                returns[task][name].append(mean_return(task, policy))
                logging.info("seed %d, %s, %s: return %.1f", seed, task, name, returns[task][name][-1])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(returns))


if __name__ == "__main__":
    main()
