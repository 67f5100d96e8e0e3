"""Refinement: an imitated policy becomes a good one on a learned reward alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load as parse_tensors
from torch import Tensor

from embodied_rm.checkpoint_io import MANIFEST, load_tensors, save_tensors, serialised, under_prefix, with_prefix
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.base import RewardModel
from embodied_rm.rl.buffer import collect
from embodied_rm.rl.curriculum import Curriculum
from embodied_rm.rl.group import ALONE, Group
from embodied_rm.rl.imitation import Pairs
from embodied_rm.rl.judge import Verdict
from embodied_rm.rl.learned_env import make_reward_env
from embodied_rm.rl.loop_stats import LoopStats
from embodied_rm.rl.monitor import alarm
from embodied_rm.rl.policy import Critic, GaussianPolicy, save_policy
from embodied_rm.rl.ppo import PPO, PPOConfig, UpdateStats
from embodied_rm.rl.reward_config import RewardConfig
from embodied_rm.rl.reward_env import RewardEnv
from embodied_rm.rl.settlement import Settlement
from embodied_rm.run import Reporter, RunFolder, write_atomic

ARCHITECTURE = "ppo_refinement"
CHECKPOINT, POLICY, PROGRESS = "checkpoint", "policy", "progress.jsonl"

Evaluate = Callable[[GaussianPolicy], Verdict]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RefineConfig:
    """Refinement by PPO, on the learned reward or on one to compare it with."""

    iterations: int = 30
    """Rollouts in total, warm-up included."""
    rollout_steps: int = 60
    """Steps of every environment in one iteration."""
    warmup_iterations: int = 2
    """First iterations, in which only the critic learns: a random critic would ruin the imitated policy."""
    reference_coef: float = 0.005
    """Weight of the KL divergence from the imitated policy; falls linearly to 0 over the iterations."""
    imitation_coef: float = 0.0
    """Weight of the divergence from the demonstrations that the policy was cloned from (nats); stays."""
    stop_success: float = 1.0
    """Stop early when the success rate that the reward knows reached this in each of the last `stop_patience`
    iterations."""
    stop_patience: int = 3
    starts: int = 0
    """Pool of starts of which those that the policy fails from come more often; 0: every episode starts anywhere."""
    watched: int = 64
    """Episodes by which the simulator judges the policy after every iteration, for the learning curve and the alarm
    (`embodied_rm.rl.monitor`); 0: none."""
    seed: int = 0
    reward: RewardConfig = field(default_factory=RewardConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        for name in ("iterations", "rollout_steps", "stop_patience"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be >= 1, got {getattr(self, name)}")
        if not 0 <= self.warmup_iterations < self.iterations:
            raise UserError(
                f"warmup_iterations must be >= 0 and below iterations={self.iterations}, got {self.warmup_iterations}"
            )
        if not 0 < self.stop_success <= 1:
            raise UserError(f"stop_success must be in (0, 1], got {self.stop_success}")
        for name in ("watched", "starts"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")
        for name in ("reference_coef", "imitation_coef"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must be >= 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Refined:
    """What refinement leaves behind."""

    policy: GaussianPolicy
    cloned: Verdict
    refined: Verdict
    rows: tuple[Row, ...]
    """One a iteration, as in `progress.jsonl`."""

    def metrics(self) -> dict[str, Any]:
        """For metrics.json."""
        return {
            "cloned_success": self.cloned.as_dict(),
            "refined_success": self.refined.as_dict(),
            "iterations": len(self.rows),
            "episodes": sum(row["episodes"] for row in self.rows),
            "env_steps": sum(row["env_steps"] for row in self.rows),
            "faults": sum(row["faults"] for row in self.rows),
            "alarms": [row["iteration"] for row in self.rows if row["alarm"] is not None],
            "seconds": {stage: sum(row["seconds"][stage] for row in self.rows) for stage in self.rows[0]["seconds"]},
        }


def refine(
    env: gym.vector.VectorEnv,
    policy: GaussianPolicy,
    model: RewardModel,
    config: RefineConfig,
    run: RunFolder,
    reporter: Reporter,
    evaluate: Evaluate,
    watch: Evaluate | None = None,
    demonstrations: Pairs | None = None,
    group: Group = ALONE,
) -> Refined:
    """Refine `policy` in place on the reward of `model`; `evaluate` judges it before and after, `watch` after every
    iteration; `demonstrations` are what it was cloned from, needed with an `imitation_coef`. Of a `group`, each process
    has its share of the worlds; the first one judges and writes.

    After every iteration the run folder holds its row in `progress.jsonl` and a checkpoint of everything that learns;
    a run folder with a checkpoint is continued at the first iteration that is missing, in the middle of its episodes:
    on the CPU it ends with the weights of a run that was never interrupted, to the last bit. Where the environment
    has no `snapshot` and `restore`, or the memory of the model cannot be stored, episodes start afresh on
    continuation. Leaves the refined policy in `policy/`. Raises `UserError` when the environment does not fit or the
    learning became non-finite.
    """
    wrapped = make_reward_env(env, model, config.reward, config.ppo.gamma)
    if config.starts:
        if group.size > 1:
            raise UserError(f"starts={config.starts} keeps account of all worlds in one process: set starts=0")
        wrapped.curriculum = Curriculum(config.starts, env.num_envs, config.seed)
    observation, _ = wrapped.reset(seed=group.seeds(episode_seed(config.seed, 0), env.num_envs))
    learner = make_learner(policy, config, wrapped.critic_size, demonstrations, group)
    settlement = Settlement(wrapped.rule, wrapped.terms, wrapped.critic_size, config.seed)
    unripe = -(-getattr(env, "max_episode_steps", 1) // config.rollout_steps) - 1
    begun = (run.path / CHECKPOINT / MANIFEST).exists()
    rows, stored = resume(learner, settlement, run, group) if begun else ([], {})
    reporter.table("refine", what_is_built(env, learner, model, config))
    cloned = judged(evaluate, learner.reference, group)
    reporter.note(f"imitated policy: success {cloned.rate:.3f} in {cloned.episodes} episodes")
    if rows:
        observation, _ = wrapped.reset(seed=group.seeds(episode_seed(config.seed, len(rows)), env.num_envs))
    if worlds := under_prefix(f"episodes{group.rank}", stored):
        observation = wrapped.restore(worlds)
    for iteration in reporter.track(range(len(rows), config.iterations), "refine", total=config.iterations):
        if settled(rows, config):
            break
        observation, row = iterate(wrapped, learner, settlement, observation, iteration, config)
        rows.append({**row, **watched(policy, watch, group)})
        rows[-1]["alarm"] = alarm(rows, unripe)
        save(learner, settlement, wrapped, rows, run, group)
        reporter.note(describe(rows[-1]))
    if group.rank == 0:
        save_policy(run.path / POLICY, policy)
    return Refined(policy=policy, cloned=cloned, refined=judged(evaluate, policy, group), rows=tuple(rows))


def make_learner(
    policy: GaussianPolicy,
    config: RefineConfig,
    critic_size: int | None = None,
    demonstrations: Pairs | None = None,
    group: Group = ALONE,
) -> PPO:
    """PPO around the policy, on its device, with a new critic. It sees what the policy does, or `critic_size` numbers
    of its own, whose spread it takes from the first rollout."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        critic = Critic(critic_size or policy.spec.obs_dim, policy.spec.hidden)
    if sees_alike(critic, policy):
        critic.normaliser.load_state_dict(policy.normaliser.state_dict())
    critic.to(policy.device)
    return PPO(policy, critic, config.ppo, torch.Generator().manual_seed(config.seed), demonstrations, group)


def sees_alike(critic: Critic, policy: GaussianPolicy) -> bool:
    """Whether both see the same, and not the one the state and the other what a robot has of it."""
    return critic.normaliser.mean.shape == policy.normaliser.mean.shape


def iterate(
    env: RewardEnv,
    learner: PPO,
    settlement: Settlement,
    observation: npt.NDArray[np.floating],
    iteration: int,
    config: RefineConfig,
) -> tuple[npt.NDArray[np.floating], Row]:
    """One rollout and one update. The observation after, and the row for `progress.jsonl`."""
    group = learner.group
    buffer, observation = collect(env, learner.policy, observation, config.rollout_steps, learner.generator, group)
    stats = env.drain()
    with stats.timed("learn"):
        if iteration == 0 and not sees_alike(learner.critic, learner.policy):
            learner.critic.normaliser.fit(torch.from_numpy(buffer.critic_observation).flatten(0, 1))
        if not env.rule.at_once:
            buffer.reward[:] = settlement.pay(buffer, learner.policy)
        batch = buffer.batch(learner.critic, config.ppo.gamma, config.ppo.gae_lambda)
        update = learner.update(
            batch,
            train_actor=iteration >= config.warmup_iterations,
            reference_coef=config.reference_coef * (1 - iteration / config.iterations),
            imitation_coef=config.imitation_coef,
        )
    return observation, summarise(iteration, stats.shared(group), update)


def judged(evaluate: Evaluate, policy: GaussianPolicy, group: Group) -> Verdict:
    """What the first process finds, for everybody."""
    said = group.tell(asdict(evaluate(policy)) if group.rank == 0 else None)
    return Verdict(**said[0])


def watched(policy: GaussianPolicy, watch: Evaluate | None, group: Group) -> Row:
    """What the simulator says of the policy now, for a row of `progress.jsonl`."""
    if watch is None:
        return {"watched": 0, "watched_successes": 0, "watched_success": None}
    verdict = judged(watch, policy, group)
    return {"watched": verdict.episodes, "watched_successes": verdict.successes, "watched_success": verdict.rate}


def summarise(iteration: int, stats: LoopStats, update: UpdateStats) -> Row:
    """One row of `progress.jsonl`; a rate or mean over nothing is null."""

    def share(part: float, whole: int) -> float | None:
        return part / whole if whole else None

    return {
        "iteration": iteration,
        "env_steps": stats.steps,
        "episodes": stats.episodes,
        "faults": stats.faults,
        "success": share(stats.successes, stats.episodes),
        "learned_successes": stats.learned_successes,
        "learned_success": share(stats.learned_successes, stats.episodes),
        "simulator_success": share(stats.simulator_successes, stats.episodes),
        "shaped_return": share(stats.shaped_return, stats.episodes),
        "scored": stats.scored,
        "invalid_rate": share(stats.invalid, stats.scored),
        "verdict_rate": share(stats.verdicts, stats.scored - stats.invalid),
        **asdict(update),
        "dead_views": stats.dead_views,
        "seconds": stats.seconds,
    }


def describe(row: Row) -> str:
    """One line about one iteration."""

    def shown(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    return (
        f"iteration {row['iteration']:3d}: success {shown(row['learned_success'])} by the model, "
        f"{shown(row['simulator_success'])} by the simulator; {row['episodes']} episodes; "
        f"return {shown(row['shaped_return'])}; KL {row['kl']:.4f}, from the imitated policy {row['reference_kl']:.3f}"
        + ("" if row["alarm"] is None else f"\nALARM: {row['alarm']}")
    )


def what_is_built(
    env: gym.vector.VectorEnv, learner: PPO, model: RewardModel, config: RefineConfig
) -> dict[str, object]:
    """The table shown before the first step."""
    return {
        "environments": env.num_envs,
        "reward model": type(model).__name__,
        "policy": f"{learner.policy.spec.obs_dim} -> {learner.policy.spec.hidden} -> {learner.policy.spec.action_dim}",
        "iterations": f"{config.iterations} of {config.rollout_steps} steps, {config.warmup_iterations} of warm-up",
        "gamma": config.ppo.gamma,
        "reward rule": f"{config.reward.rule}, scale {config.reward.scale}, scored every "
        f"{config.reward.score_every} steps",
        "success": f"+{config.reward.success_reward} {who_says_so(config.reward)}",
        "KL to the imitated policy": f"{config.reference_coef} falling to 0",
        "KL to the demonstrations": config.imitation_coef,
    }


def who_says_so(reward: RewardConfig) -> str:
    """When an episode is a success."""
    if reward.success == "simulator":
        return "when the simulator says so"
    return f"after {reward.success_patience} verdicts of the model >= {reward.success_threshold}"


def settled(rows: list[Row], config: RefineConfig) -> bool:
    """Whether the success rate that the reward knows has stayed at `stop_success` after the warm-up."""
    recent = [row["success"] for row in rows[config.warmup_iterations :]][-config.stop_patience :]
    return len(recent) == config.stop_patience and all(r is not None and r >= config.stop_success for r in recent)


def episode_seed(seed: int, iteration: int) -> int:
    """The seed of the episodes that start at an iteration: the first ones of a run and those after a resume."""
    return int(np.random.SeedSequence([seed, iteration]).generate_state(1)[0] >> 1)


def save(
    learner: PPO, settlement: Settlement, env: RewardEnv, rows: list[Row], run: RunFolder, group: Group = ALONE
) -> None:
    """Write progress first and the checkpoint last, so that a checkpoint never lacks its rows."""
    episodes = [parse_tensors(content) for content in group.exchange(serialised(env.state()))]
    if group.rank:
        return
    write_atomic(run.file(PROGRESS), "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    manifest = {"architecture": ARCHITECTURE, "iterations": len(rows), "processes": group.size}
    parts = {"settlement": settlement.state(), **{f"episodes{rank}": part for rank, part in enumerate(episodes)}}
    tensors = {**learner.state(), **{k: v for name, part in parts.items() for k, v in with_prefix(name, part).items()}}
    save_tensors(run.path / CHECKPOINT, tensors, manifest)


def resume(
    learner: PPO, settlement: Settlement, run: RunFolder, group: Group = ALONE
) -> tuple[list[Row], dict[str, Tensor]]:
    """Load the last whole iteration into learner and settlement; the rows up to it, and all that was stored."""
    tensors, manifest = load_tensors(run.path / CHECKPOINT, ARCHITECTURE)
    if manifest["processes"] != group.size:
        raise UserError(f"the run in {run.path} was begun by {manifest['processes']} processes, these are {group.size}")
    learner.restore(tensors, run.path / CHECKPOINT)
    settlement.restore(under_prefix("settlement", tensors), run.path / CHECKPOINT)
    path = run.path / PROGRESS
    lines = path.read_text().splitlines()[: manifest["iterations"]] if path.exists() else []
    if len(lines) != manifest["iterations"]:
        raise CheckpointError(f"{path}: {len(lines)} rows, the checkpoint has seen {manifest['iterations']} iterations")
    return [json.loads(line) for line in lines], tensors
