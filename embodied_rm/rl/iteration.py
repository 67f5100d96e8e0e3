"""One iteration of refinement: a rollout, and what the learner makes of it."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from math import inf

import numpy as np
import numpy.typing as npt
import torch

from embodied_rm.distributed import SINGLE_PROCESS, DistContext
from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import RewardRule
from embodied_rm.rewards.transitions import is_finished
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.reward_env import RewardEnv
from embodied_rm.rl.envs.rollout_stats import RolloutStats
from embodied_rm.rl.learner.buffer import RolloutBuffer, collect
from embodied_rm.rl.learner.demo_pairs import DemoPairs
from embodied_rm.rl.learner.hurl import WINDOW_ITERATIONS, Heuristic, heuristic_weight
from embodied_rm.rl.learner.policy import GaussianPolicy, ValueCritic
from embodied_rm.rl.learner.ppo import PPO, UpdateStats
from embodied_rm.rl.off_policy.hnpg import HNPG
from embodied_rm.rl.off_policy.rlpd import RLPD, RLPDStats
from embodied_rm.rl.offline.transitions import OfflineTransitions, check_unit_actions
from embodied_rm.rl.refine_config import RefineConfig
from embodied_rm.rl.watch.log_rows import LogRow, summarize_iteration

Learner = PPO | RLPD


def make_critic(
    policy: GaussianPolicy, config: RefineConfig, critic_obs_dim: int, *, sees_state: bool = False
) -> ValueCritic:
    """Return a new critic on the device of the policy, for observations of size `critic_obs_dim`.

    If they are not those of the policy, but the environment's state (`sees_state`), the first rollout sets their
    normalization. They have a detailed encoding of lengths if those of the policy do.
    """
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        critic = ValueCritic(critic_obs_dim, policy.spec.hidden, critic_obs_dim if policy.spec.length_dims else 0)
    if shares_observation(policy, sees_state=sees_state):
        critic.normalizer = copy.deepcopy(policy.normalizer)
    return critic.to(policy.device)


def shares_observation(policy: GaussianPolicy, *, sees_state: bool) -> bool:
    """Return whether a critic has the observations of the policy."""
    return policy.spec.obs_mode == "state" and not sees_state


def make_learner(
    policy: GaussianPolicy,
    config: RefineConfig,
    critic_obs_dim: int,
    demonstrations: DemoPairs | None = None,
    dist: DistContext = SINGLE_PROCESS,
    *,
    critic_sees_state: bool = False,
) -> PPO:
    """Return PPO for the policy, on its device, with a new critic."""
    critic = make_critic(policy, config, critic_obs_dim, sees_state=critic_sees_state)
    return PPO(policy, critic, config.ppo, torch.Generator().manual_seed(config.seed), demonstrations, dist)


def make_hybrid_learner(
    policy: GaussianPolicy, config: RefineConfig, env: RewardEnv, recorded: OfflineTransitions | None
) -> HNPG | RLPD:
    """Return a learner for the policy that learns from recorded transitions too.

    Raises:
        UserError: There are none, they have other sizes than the policy, or the algorithm does not support the rule or
            the observations.
    """
    algorithm = config.algorithm
    if recorded is None:
        raise UserError(f"algorithm={algorithm} learns from recorded episodes: name them, recorded_data= or recorded=")
    check_hybrid(policy, config, env, recorded)
    values = value_range(env.rule, config.reward)
    if algorithm == "rlpd":
        return RLPD(policy, recorded, config.rlpd, config.ppo.gamma, config.seed, values)
    critic = make_critic(policy, config, env.critic_obs_dim)
    return HNPG(policy, critic, recorded, config.ppo, config.hnpg, config.seed, values)


def check_hybrid(policy: GaussianPolicy, config: RefineConfig, env: RewardEnv, recorded: OfflineTransitions) -> None:
    """Raise `UserError` if recorded transitions do not fit the policy, or the algorithm the environment or the rule."""
    algorithm, rule = config.algorithm, config.reward.rule
    spec, sizes = policy.spec, (recorded.observation.shape[1], recorded.action.shape[1])
    if sizes != (spec.obs_dim, spec.action_dim):
        raise UserError(
            f"the recorded episodes have states of size {sizes[0]} and actions of size {sizes[1]}, the policy "
            f"{spec.obs_dim} and {spec.action_dim}"
        )
    check_unit_actions(recorded.action, f"algorithm={algorithm}")
    space = env.single_action_space
    if not (np.all(space.low == -1) and np.all(space.high == 1)):  # type: ignore[attr-defined]
        raise UserError(
            f"algorithm={algorithm} takes actions in [-1, 1], and the environment has {space}: rescale them"
        )
    if spec.obs_mode != "state" or policy.device.type != "cpu":
        observed = f"obs_mode={spec.obs_mode} on {policy.device.type}"
        raise UserError(f"algorithm={algorithm} is for policies of the state on the CPU, not {observed}")
    if env.critic_sees_state:
        raise UserError(
            f"algorithm={algorithm} learns values of the observations of the policy: infos of the environment must not "
            "have a `state` for the critic"
        )
    if not env.rule.per_step or env.rule.treats_timeout_as_terminal:
        raise UserError(f"algorithm={algorithm} needs a rule that is known step by step, not reward.rule={rule}")
    if algorithm == "hnpg" and env.rule.progress_source == "none" and config.reward.success_source == "model":
        raise UserError(
            f"algorithm=hnpg: the critic observes the model's progress, which reward.rule={rule} does not read from "
            "recorded episodes: set reward.rule=shaped or reward.success_source=simulator"
        )


def value_range(rule: RewardRule, config: RewardConfig) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a state under a rule, as far as they are known.

    An episode has at most one success. A potential in [0, `progress_scale`] only shifts the value of a state by at most
    itself, downwards (Ng, Harada and Russell, ICML 1999, corollary 2).
    """
    if not rule.policy_invariant:
        return -inf, inf
    return -config.progress_scale if rule.is_potential_based else 0.0, config.success_reward


def run_iteration(
    env: RewardEnv,
    learner: Learner,
    rollout_rewards: RolloutRewards,
    observation: npt.NDArray[np.floating],
    iteration: int,
    config: RefineConfig,
    heuristic: Heuristic | None = None,
) -> tuple[npt.NDArray[np.floating], LogRow]:
    """Run one rollout and one update, and return the observation after it and the row of `progress.jsonl`."""
    dist = learner.dist
    start_time = time.perf_counter()
    buffer, observation = collect(env, learner.policy, observation, config.rollout_steps, learner.generator, dist)
    stats = env.pop_stats()
    stats.seconds["act"] = time.perf_counter() - start_time - sum(stats.seconds.values())
    with stats.time_phase("learn"):
        train_policy = iteration >= config.critic_warmup_iterations
        if isinstance(learner, RLPD):
            update: UpdateStats | RLPDStats = learner.update(buffer, train_policy=train_policy)
        else:
            update = update_ppo(learner, buffer, env, rollout_rewards, stats, iteration, config, heuristic)
    return observation, summarize_iteration(iteration, stats.sum_over_processes(dist), update)


def update_ppo(
    learner: PPO,
    buffer: RolloutBuffer,
    env: RewardEnv,
    rollout_rewards: RolloutRewards,
    stats: RolloutStats,
    iteration: int,
    config: RefineConfig,
    heuristic: Heuristic | None,
) -> UpdateStats:
    """Compute the rewards of a rollout that are not known step by step, and its advantages; and update the learner."""
    dist = learner.dist
    if iteration == 0 and not shares_observation(learner.policy, sees_state=env.critic_sees_state):
        learner.critic.normalizer.fit(torch.from_numpy(buffer.critic_observation).flatten(0, 1))
    if not env.rule.per_step:
        buffer.reward[:] = rollout_rewards.compute_rewards(buffer, learner.policy, dist)
        finished = buffer.valid & is_finished(buffer.done)
        stats.shaped_return = float(buffer.reward[finished].sum()) / dist.world_size
    if env.rule.treats_timeout_as_terminal:
        buffer.terminated |= buffer.done & buffer.valid
    shaping_scale = config.reward.progress_scale if env.rule.is_potential_based else 0.0
    if isinstance(learner, HNPG):
        learner.fit_recorded(buffer, shaping_scale)
    batch = buffer.make_batch(learner.critic, config.ppo.gamma, config.ppo.gae_lambda, shaping_scale, heuristic)
    return learner.update(
        batch,
        train_actor=iteration >= config.critic_warmup_iterations,
        bc_kl_coef=config.bc_kl_coef * (1 - iteration / config.iterations),
        imitation_coef=config.imitation_coef,
    )


def make_heuristic(
    rule: RewardRule, config: RefineConfig, rows: Sequence[LogRow], episode_iterations: int = 1
) -> Heuristic | None:
    """Return the heuristic of the iteration after `rows`; None if its weight is 0, or nothing may use it.

    `episode_iterations` is the number of iterations in which every episode ends.
    """
    if not rule.is_potential_based or config.algorithm != "ppo":  # the recorded states of hnpg have other values
        return None
    full_rows = [row for row in rows if row["has_full_episodes"]][-max(WINDOW_ITERATIONS, episode_iterations) :]
    final_potentials = [row["final_potential"] * row["episodes"] for row in full_rows if row["episodes"]]
    final_potential = sum(final_potentials) / max(1, sum(row["episodes"] for row in full_rows))
    remaining = 1 - len(rows) / config.iterations
    coef = heuristic_weight(config.heuristic_coef, remaining, final_potential, config.heuristic_off_at)
    return Heuristic(weight=coef, success_reward=config.reward.success_reward) if coef else None
