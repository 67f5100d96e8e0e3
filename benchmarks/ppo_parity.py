"""Our PPO against Stable-Baselines3's at equal settings: python benchmarks/ppo_parity.py

Gymnasium's Pendulum-v1, one thread; needs `pip install -e .[bench]`. Writes docs/results/ppo_parity.md.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import stable_baselines3 as sb3
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorWrapper
from scipy import stats
from stable_baselines3.common.env_util import make_vec_env

from embodied_rm.rl.buffer import collect
from embodied_rm.rl.policy import Critic, GaussianPolicy, PolicySpec
from embodied_rm.rl.ppo import PPO, PPOConfig

TASK, ENVS, ROLLOUT, MINIBATCH, HIDDEN = "Pendulum-v1", 4, 1024, 64, (64, 64)
CONFIG = PPOConfig(
    gamma=0.9,
    gae_lambda=0.95,
    actor_lr=1e-3,
    critic_lr=1e-3,
    epochs=10,
    minibatches=ENVS * ROLLOUT // MINIBATCH,
    clip=0.2,
    entropy_coef=0.0,
    target_kl=float("inf"),
    max_grad_norm=0.5,
)
Act = Callable[[np.ndarray], np.ndarray]


class DenseFinal(VectorWrapper):
    """Gymnasium's SAME_STEP autoreset with the infos that `collect` needs."""

    def step(self, actions):
        observation, reward, terminated, truncated, infos = self.env.step(actions)
        final = observation.copy()
        for row in np.flatnonzero(terminated | truncated):
            final[row] = infos["final_obs"][row]
        flat = np.zeros(self.num_envs)
        needed = {"final_obs": final, "valid": flat == 0, "potential": flat, "next_potential": flat}
        return observation, reward, terminated, truncated, needed


def train_ours(steps: int, seed: int) -> Act:
    """Our policy after `steps` environment steps."""
    torch.manual_seed(seed)
    make = [lambda: gym.make(TASK)] * ENVS
    env = DenseFinal(SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP))
    spec = PolicySpec(obs_dim=3, action_dim=1, hidden=HIDDEN, log_std_init=0.0)
    ppo = PPO(GaussianPolicy(spec), Critic(3, HIDDEN), CONFIG, torch.Generator().manual_seed(seed))
    observation, _ = env.reset(seed=seed)
    for _ in range(-(-steps // (ENVS * ROLLOUT))):
        buffer, observation = collect(env, ppo.policy, observation, ROLLOUT, ppo.generator)
        ppo.update(buffer.batch(ppo.critic, CONFIG.gamma, CONFIG.gae_lambda))
    return ppo.policy.act


def train_theirs(steps: int, seed: int) -> Act:
    """Stable-Baselines3's policy after `steps` environment steps."""
    model = sb3.PPO(
        "MlpPolicy",
        make_vec_env(TASK, ENVS, seed=seed),
        learning_rate=CONFIG.actor_lr,
        n_steps=ROLLOUT,
        batch_size=MINIBATCH,
        n_epochs=CONFIG.epochs,
        gamma=CONFIG.gamma,
        gae_lambda=CONFIG.gae_lambda,
        clip_range=CONFIG.clip,
        ent_coef=CONFIG.entropy_coef,
        max_grad_norm=CONFIG.max_grad_norm,
        policy_kwargs={"net_arch": list(HIDDEN)},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    return lambda observation: model.predict(observation, deterministic=True)[0]


def mean_return(act: Act, episodes: int = 100) -> float:
    """Mean undiscounted return of `episodes` episodes with fixed seeds, by the mean action."""
    env = SyncVectorEnv([lambda: gym.make(TASK)] * episodes, autoreset_mode=AutoresetMode.DISABLED)
    observation, _ = env.reset(seed=10_000)
    total, done = np.zeros(episodes), False
    space = env.single_action_space
    while not done:
        observation, reward, _, truncated, _ = env.step(np.clip(act(observation), space.low, space.high))
        total += reward
        done = bool(truncated.all())
    return float(total.mean())


def interval(values: list[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean over seeds."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(np.mean(values) - half), float(np.mean(values) + half)


def report(returns: dict[str, list[float]], seconds: dict[str, float], steps: int) -> str:
    """The page for docs/results."""
    seeds = len(returns["ours"])
    low, high = interval(returns["Stable-Baselines3"])
    inside = low <= np.mean(returns["ours"]) <= high
    lines = [
        "# PPO parity",
        "",
        f"Our PPO (`embodied_rm/rl/ppo.py`) and Stable-Baselines3 {sb3.__version__} on {TASK} at equal settings: "
        f"{steps:,} steps, {seeds} seeds each, mean return of 100 episodes with the mean action.",
        "",
        "| learner | mean return | 95 % interval of the mean | each seed | seconds a seed |",
        "|---|---|---|---|---|",
    ]
    for name, values in returns.items():
        bounds = interval(values)
        each = ", ".join(f"{value:.0f}" for value in values)
        row = f"| {name} | {np.mean(values):.1f} | [{bounds[0]:.1f}, {bounds[1]:.1f}] | {each} |"
        lines.append(f"{row} {seconds[name] / seeds:.0f} |")
    lines += [
        "",
        f"Our mean lies {'inside' if inside else '**outside**'} the interval of Stable-Baselines3.",
        "",
        f"Settings: {ENVS} environments, {ROLLOUT} steps a rollout, minibatch {MINIBATCH}, "
        f"{CONFIG.epochs} epochs, learning rate {CONFIG.actor_lr}, gamma {CONFIG.gamma}, lambda {CONFIG.gae_lambda}, "
        f"clip {CONFIG.clip}, gradient norm {CONFIG.max_grad_norm}, two tanh layers of {HIDDEN[0]}, one thread on a "
        "shared CPU. What is not equal: ours has an optimiser and a gradient norm for each network, and normalises "
        "advantages once a rollout.",
        "",
        f"    python benchmarks/ppo_parity.py --steps {steps} --seeds {seeds}",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of each training")
    parser.add_argument("--seeds", type=int, default=5, help="trainings of each learner")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ppo_parity.md"))
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.set_num_threads(1)
    learners = {"ours": train_ours, "Stable-Baselines3": train_theirs}
    returns: dict[str, list[float]] = {name: [] for name in learners}
    seconds = dict.fromkeys(learners, 0.0)
    for seed in range(args.seeds):
        for name, train in learners.items():
            start = time.perf_counter()
            act = train(args.steps, seed)
            seconds[name] += time.perf_counter() - start
            returns[name].append(mean_return(act))
            logging.info("seed %d, %s: return %.1f", seed, name, returns[name][-1])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(report(returns, seconds, args.steps))


if __name__ == "__main__":
    main()
