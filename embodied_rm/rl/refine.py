"""Refinement: an imitated policy becomes a good one on a learned reward alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch

from embodied_rm.checkpoint_io import MANIFEST
from embodied_rm.errors import UserError
from embodied_rm.group import ALONE, Group
from embodied_rm.logs import open_log
from embodied_rm.models.base import RewardModel
from embodied_rm.rewards.rules import Rule
from embodied_rm.rewards.steps import finished
from embodied_rm.rl.credit.settlement import Settlement
from embodied_rm.rl.envs.curriculum import Curriculum
from embodied_rm.rl.envs.learned_env import make_reward_env
from embodied_rm.rl.envs.reward_env import RewardEnv, has_episodes
from embodied_rm.rl.learner.buffer import collect
from embodied_rm.rl.learner.guidance import Guidance, weight
from embodied_rm.rl.learner.imitation import Pairs
from embodied_rm.rl.learner.policy import Critic, GaussianPolicy, save_policy
from embodied_rm.rl.learner.ppo import PPO
from embodied_rm.rl.refine_checkpoint import CHECKPOINT, resume, save
from embodied_rm.rl.refine_config import RefineConfig, who_says_so
from embodied_rm.rl.seeds import stream_seed
from embodied_rm.rl.watch.crosscheck import Checked
from embodied_rm.rl.watch.judge import Verdict
from embodied_rm.rl.watch.monitor import alarm
from embodied_rm.rl.watch.progress_rows import Row, checked, describe, summarise, watched
from embodied_rm.run import Reporter, RunFolder

POLICY = "policy"
Evaluate = Callable[[GaussianPolicy], Verdict]
Check = Callable[[GaussianPolicy, int], Checked]
"""Of the policy after an iteration."""


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
    evaluate: Evaluate | None,
    watch: Evaluate | None = None,
    check: Check | None = None,
    demonstrations: Pairs | None = None,
    group: Group = ALONE,
) -> Refined:
    """Refine `policy` in place on the reward of `model`; `evaluate` judges it before and after, `watch` after every
    iteration, and `check` whether what the model calls a success is one; `demonstrations` are what it was cloned from,
    needed with an `imitation_coef`. Of a `group`, each process has its share of the worlds; the first one judges and
    writes, the others need no `evaluate`, `watch` and `check`.

    After every iteration the run folder holds its row in `progress.jsonl` and in TensorBoard's event file, and a
    checkpoint of everything that learns;
    a run folder with a checkpoint is continued at the first iteration that is missing, in the middle of its episodes:
    on the CPU it ends with the weights of a run that was never interrupted, to the last bit. Where the environment
    has no `snapshot` and `restore`, or the memory of the model cannot be stored, episodes start afresh on
    continuation. Leaves the refined policy in `policy/`. Raises `UserError` when the environment does not fit or the
    learning became non-finite.
    """
    refuse_what_cannot_be(config, policy, demonstrations, group)
    wrapped = make_reward_env(env, model, config.reward, config.ppo.gamma)
    if config.starts:
        wrapped.curriculum = Curriculum(config.starts, env.num_envs, config.seed)
    observation, _ = wrapped.reset(seed=group.seeds(episode_seed(config.seed, 0), env.num_envs))
    learner = make_learner(policy, config, wrapped.critic_size, demonstrations, group)
    settlement = Settlement(wrapped.rule, wrapped.terms, wrapped.critic_size, config.seed)
    begun = (run.path / CHECKPOINT / MANIFEST).exists()
    rows, worlds = resume(learner, settlement, run) if begun else ([], {})
    ripe_from = ripening(getattr(env, "max_episode_steps", 1), config.rollout_steps)
    reporter.table("refine", what_is_built(env, learner, model, config))
    wrapped.refuse_what_cannot_be_paid(config.rollout_steps)
    cloned = judged(evaluate, learner.reference, group)
    assert cloned is not None, "the first process must judge"
    reporter.note(f"imitated policy: success {cloned.rate:.3f} in {cloned.episodes} episodes")
    if rows:
        observation = wrapped.restore(worlds, group.seeds(episode_seed(config.seed, len(rows)), env.num_envs))
        if not has_episodes(worlds):
            settlement.cut()
            ripe_from += len(rows)
    wrapped.drain()  # what the resets took is no iteration's
    with open_log(run, reporter, config.wandb, group.rank) as log:
        for iteration in reporter.track(range(len(rows), config.iterations), "refine", total=config.iterations):
            if settled(rows, config):
                break
            guidance = guided(wrapped.rule, config, rows)
            observation, row = iterate(wrapped, learner, settlement, observation, iteration, config, guidance)
            started = time.perf_counter()
            watching = {**watched(judged(watch, policy, group)), **checked(agreed(check, policy, iteration, group))}
            rows.append({**row, "ripe": iteration >= ripe_from, **watching})
            rows[-1]["seconds"]["watch"] = time.perf_counter() - started
            rows[-1]["alarm"] = alarm(rows)
            save(learner, settlement, wrapped, rows, run, log)
            reporter.note(describe(rows[-1]))
    if group.rank == 0:
        save_policy(run.path / POLICY, policy)
    refined = judged(evaluate, policy, group)
    assert refined is not None
    return Refined(policy=policy, cloned=cloned, refined=refined, rows=tuple(rows))


def refuse_what_cannot_be(
    config: RefineConfig, policy: GaussianPolicy, demonstrations: Pairs | None, group: Group
) -> None:
    """Raises `UserError` for settings that lack what they need."""
    if config.starts and group.size > 1:
        raise UserError(f"starts={config.starts} keeps account of all worlds in one process: set starts=0")
    if not config.imitation_coef:
        return
    if demonstrations is None:
        raise UserError(f"imitation_coef={config.imitation_coef} needs demonstrations, and there are none")
    shown, acted = demonstrations.observation.shape[1], demonstrations.action.shape[1]
    if (shown, acted) != (policy.spec.obs_dim, policy.spec.action_dim):
        raise UserError(
            f"the demonstrations have {shown} observed numbers and {acted} of action, the policy "
            f"{policy.spec.obs_dim} and {policy.spec.action_dim}: they are not what it was cloned from"
        )


def make_learner(
    policy: GaussianPolicy,
    config: RefineConfig,
    critic_size: int,
    demonstrations: Pairs | None = None,
    group: Group = ALONE,
) -> PPO:
    """PPO around the policy, on its device, with a new critic. It sees `critic_size` numbers: what the policy
    does, or its own, whose spread it takes from the first rollout; lengths, if the policy is told any."""
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        critic = Critic(critic_size, policy.spec.hidden, critic_size if policy.spec.lengths else 0)
    if sees_alike(critic, policy):
        critic.normaliser.load_state_dict(policy.normaliser.state_dict())
    critic.to(policy.device)
    return PPO(policy, critic, config.ppo, torch.Generator().manual_seed(config.seed), demonstrations, group)


def sees_alike(critic: Critic, policy: GaussianPolicy) -> bool:
    """Whether both see the same, and not the one the state and the other what a robot has of it."""
    return policy.spec.sees == "state" and critic.normaliser.mean.shape == policy.normaliser.mean.shape


def iterate(
    env: RewardEnv,
    learner: PPO,
    settlement: Settlement,
    observation: npt.NDArray[np.floating],
    iteration: int,
    config: RefineConfig,
    guidance: Guidance | None = None,
) -> tuple[npt.NDArray[np.floating], Row]:
    """One rollout and one update. The observation after, and the row for `progress.jsonl`."""
    group = learner.group
    started = time.perf_counter()
    buffer, observation = collect(env, learner.policy, observation, config.rollout_steps, learner.generator, group)
    stats = env.drain()
    stats.seconds["act"] = time.perf_counter() - started - sum(stats.seconds.values())
    with stats.timed("learn"):
        if iteration == 0 and not sees_alike(learner.critic, learner.policy):
            learner.critic.normaliser.fit(torch.from_numpy(buffer.critic_observation).flatten(0, 1))
        if not env.rule.at_once:
            buffer.reward[:] = settlement.pay(buffer, learner.policy, group)
            stats.shaped_return = float(buffer.reward[buffer.valid & finished(buffer.done)].sum()) / group.size
        if env.rule.episodic:
            buffer.terminated |= buffer.done & buffer.valid
        shaped = config.reward.scale if env.rule.shapes else 0.0
        batch = buffer.batch(learner.critic, config.ppo.gamma, config.ppo.gae_lambda, shaped, guidance)
        update = learner.update(
            batch,
            train_actor=iteration >= config.warmup_iterations,
            reference_coef=config.reference_coef * (1 - iteration / config.iterations),
            imitation_coef=config.imitation_coef,
        )
    return observation, summarise(iteration, stats.shared(group), update)


def ripening(limit: int, rollout_steps: int) -> int:
    """How many rollouts after episodes began afresh are over before one of `limit` steps can be: only successes, or
    failures that end early, can have ended in them, and no rate of theirs is the policy's."""
    return -(-limit // rollout_steps) - 1


def guided(rule: Rule, config: RefineConfig, rows: Sequence[Row]) -> Guidance | None:
    """How far the potential guides in the iteration after these; None where it does not, or the rule shapes by none."""
    heights = [row["height"] or 0.0 for row in rows if row["ripe"]]
    w = weight(config.guidance, 1 - len(rows) / config.iterations, heights, config.guided_until)
    if not w or not rule.shapes:
        return None
    return Guidance(weight=w, success_reward=config.reward.success_reward)


def judged(evaluate: Evaluate | None, policy: GaussianPolicy, group: Group) -> Verdict | None:
    """What the first process finds, for everybody; None if it does not judge."""
    said = first_says(group, None if evaluate is None else evaluate(policy))
    return None if said is None else Verdict(**said)


def agreed(check: Check | None, policy: GaussianPolicy, iteration: int, group: Group) -> Checked | None:
    """What the first process finds, for everybody; None if it does not check."""
    said = first_says(group, None if check is None else check(policy, iteration))
    return None if said is None else Checked(**said)


def first_says(group: Group, found: Verdict | Checked | None) -> dict[str, Any] | None:
    """What the first process of a group found, field by field, for everybody."""
    said: dict[str, Any] | None = group.say(None if found is None else asdict(found))[0]
    return said


def what_is_built(
    env: gym.vector.VectorEnv, learner: PPO, model: RewardModel, config: RefineConfig
) -> dict[str, object]:
    """The table shown before the first step."""
    return {
        "environments": f"{learner.group.size * env.num_envs} in {learner.group.size} processes",
        "reward model": type(model).__name__,
        "policy": f"{learner.policy.spec.obs_dim} -> {learner.policy.spec.hidden} -> {learner.policy.spec.action_dim}",
        "iterations": f"{config.iterations} of {config.rollout_steps} steps, {config.warmup_iterations} of warm-up",
        "gamma": config.ppo.gamma,
        "reward rule": f"{config.reward.rule}, scale {config.reward.scale}, scored every "
        f"{config.reward.score_every} steps",
        "success": f"+{config.reward.success_reward} {who_says_so(config.reward)}",
        "guided by the potential": f"{config.guidance}, 0 where episodes end at {config.guided_until:g} on average",
        "KL to the imitated policy": f"{config.reference_coef} falling to 0",
        "KL to the demonstrations": config.imitation_coef,
    }


def settled(rows: list[Row], config: RefineConfig) -> bool:
    """Whether the success rate that the reward knows has stayed at `stop_success` after the warm-up."""
    learned = [row["success"] for row in rows[config.warmup_iterations :] if row["ripe"]]
    recent = learned[-config.stop_patience :]
    return len(recent) == config.stop_patience and all(r is not None and r >= config.stop_success for r in recent)


def episode_seed(seed: int, iteration: int) -> int:
    """The seed of the episodes that start at an iteration: the first ones of a run and those after a resume."""
    return stream_seed(seed, iteration)
