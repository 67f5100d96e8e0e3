"""Reward rules that are known step by step, named as in their papers, and the lookup of all rules."""

import numpy as np

from embodied_rm.client.shaping import shaped_reward
from embodied_rm.errors import lookup
from embodied_rm.labels.hops import hop
from embodied_rm.labels.ordinal import rubric_score, score_to_reward
from embodied_rm.plugins import load_plugins
from embodied_rm.rewards.rule_registry import RULES, RewardRule, register_reward_rule
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions

__all__ = ["RULES", "RewardRule", "find_rule", "register_reward_rule"]

COMPLETE_THRESHOLD = 0.5  # probability of success from which an episode counts as complete, for `hold`
MIN_PROGRESS_CHANGE = 0.01  # change of progress up to which two states are equally close to the goal, for `hold`
SHAPING_COEF = 0.1  # kappa of `negative_time`
MAX_FAILURE_PROGRESS = 1 - 1e-6  # upper limit of the progress of a failed episode, for `terminal_ordinal`: score 4 of 5


def find_rule(name: str) -> RewardRule:
    """Return the rule of that name; the `UserError` for an unknown one has the nearest name."""
    load_plugins("embodied_rm.reward_rules")
    return lookup(RULES, name, "reward rule")


@register_reward_rule("sparse", progress_source="none", policy_invariant=True)
def sparse(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return the reward of the task."""
    return transitions.task_reward


@register_reward_rule("dense", progress_source="simulator", policy_invariant=True, is_potential_based=True)
@register_reward_rule("shaped", policy_invariant=True, is_potential_based=True)
def shaped(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale (gamma Phi' (not terminated) - Phi): potential-based shaping, right at every episode end.

    The optimal policy is that of the task. Source: Ng, Harada and Russell 1999; Grzes, AAMAS 2017, for the terminal
    rule.
    """
    task, phi, next_phi = transitions.task_reward, transitions.potential, transitions.next_potential
    return shaped_reward(task, phi, next_phi, transitions.terminated, params.gamma, scale=params.scale)


@register_reward_rule("difference")
def difference(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale (Phi' - Phi): the difference of progress, without discount and without a terminal rule.

    Progress is not given back when an episode ends. With a discount below 1, early progress counts more than late
    progress, so the optimal policy differs from that of the task. Source: Robometer (`use_relative_rewards`), ProcVLM's
    fork of RLinf.
    """
    return transitions.task_reward + params.scale * (transitions.next_potential - transitions.potential)


@register_reward_rule("raw")
def raw(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale Phi': absolute progress at every step.

    Staying near the goal for long enough earns more than reaching it. Source: ReWiND, in addition to its success bonus.
    """
    return transitions.task_reward + params.scale * transitions.next_potential


@register_reward_rule("hold", uses_success_prob=True)
def hold(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return scale ((c + 1) / 2 + Phi' + d) / 3: mean of contrast, progress and completion, without the task reward.

    c in {-1, 0, 1} is the sign of the last change of progress, d in {0, 1} whether the task is done. Every step has a
    reward, so ending an episode early loses reward. Source: Large Reward Models (tri: `vlm_pure_reward`,
    `vlm_non_call_reward_mode: hold`).
    """
    contrast = np.sign(transitions.potential_change) * (np.abs(transitions.potential_change) > MIN_PROGRESS_CHANGE)
    is_complete = transitions.success_prob >= COMPLETE_THRESHOLD
    return params.scale * ((contrast + 1) / 2 + transitions.next_potential + is_complete) / 3


@register_reward_rule("delta")
def delta(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale hop(Phi, Phi'): the relative hop between consecutive scores.

    A hop is relative to the remaining progress, so the last part of a task is worth as much as all before it. Source:
    VLAC (the pairwise delta of its critic).
    """
    return transitions.task_reward + params.scale * hop(transitions.potential, transitions.next_potential)


@register_reward_rule("negative_time", required_input="max_episode_steps")
def negative_time(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return -1, 0 at success, + scale kappa (gamma Phi' (not success) - Phi), Phi = -(1 - progress) max_episode_steps.

    A step costs 1 until success, shaped by the estimated remaining time. As in the source, an episode that ends in
    failure is not terminal. Source: RynnValue (`apply_reward_shaping`).
    """
    assert params.max_episode_steps is not None
    remaining = (1 - transitions.potential) * params.max_episode_steps
    next_remaining = (1 - transitions.next_potential) * params.max_episode_steps
    shaping = remaining - np.where(transitions.is_success, 0.0, params.gamma * next_remaining)
    return np.where(transitions.is_success, 0.0, -1.0) + params.scale * SHAPING_COEF * shaping


@register_reward_rule("program", progress_source="simulator", required_input="program_reward")
def program(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale (reward of a reward program), as the program computes it from the simulator's state.

    Nothing keeps the optimal policy: waiting may earn more than success. Source: Eureka (arXiv 2310.12931),
    Text2Reward (arXiv 2309.11489). A program of progress is a potential instead: rule `dense`.
    """
    assert transitions.program_reward is not None
    return transitions.task_reward + params.scale * transitions.program_reward


@register_reward_rule("terminal_ordinal", treats_timeout_as_terminal=True)
def terminal_ordinal(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return scale (score - 1) / 4 at the end of the episode, else 0: a score from 1 to 5.

    The score is that of the final progress; 5 is success. Source: RoboReward.
    """
    final_progress = np.where(transitions.is_success, 1.0, np.minimum(transitions.next_potential, MAX_FAILURE_PROGRESS))
    return np.where(transitions.done, params.scale * score_to_reward(rubric_score(final_progress)), 0.0)


# Registers its rules.
from embodied_rm.rewards import episodic_rules as episodic_rules  # noqa: E402
