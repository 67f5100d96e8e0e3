"""Reward rules that need a whole rollout, or inputs that are learned from rollouts, named as in their papers."""

import numpy as np
import scipy

from embodied_rm.rewards.rule_registry import register_reward_rule
from embodied_rm.rewards.transitions import (
    FloatArray,
    RewardParams,
    Transitions,
    last_per_episode,
    mean_per_episode,
    number_episodes,
    sum_per_episode,
)

MIN_SUCCESS_PROB = 0.5  # final probability of success that an episode must exceed, for `gated`
MIN_FORM_TEMPERATURE = 0.1  # T of `min_form`
SIGMOID_STEEPNESS = 10.0
"""k of `sigmoid_reference` and `reference_reward`: progress is in [0, 1], not in the range of a model's logits."""
MAX_FAILURE_REWARD, SIGMOID_MIDPOINT = 0.6, 0.5  # limit for failures and midpoint of `reference_reward`


@register_reward_rule("sigmoid_reference", required_input="reference_rewards", treats_timeout_as_terminal=True)
def sigmoid_reference(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return scale mean_m sigmoid(k (Phi' - ref_m)) at the end, else 0: how much better than the imitated policy.

    `params.reference_rewards` are the ref_m, the final progress of M episodes of the imitated policy. Source: PAR
    (preference as reward).
    """
    assert params.reference_rewards, "there are no reference episodes of the imitated policy"
    reward = np.zeros(transitions.done.shape)
    final_progress = np.where(transitions.is_success, 1.0, transitions.next_potential)[transitions.done]
    win_prob = 1 / (1 + np.exp(-SIGMOID_STEEPNESS * (final_progress[:, None] - np.array(params.reference_rewards))))
    reward[transitions.done] = params.scale * win_prob.mean(axis=1)
    return reward


@register_reward_rule("blended", required_input="auxiliary_weight")
def blended(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + auxiliary_weight * auxiliary reward.

    The weight is learned from its effect on the task return, by `embodied_rm.rl.credit.auxiliary_weight`. Source: BARFI
    (behavior alignment via reward function optimization).
    """
    return transitions.task_reward + params.auxiliary_weight * auxiliary_reward(transitions, params)


def auxiliary_reward(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return scale Phi' / T, the auxiliary reward of `blended`; T is the time limit of an episode.

    Its sum is at most `scale`, so that no auxiliary reward outweighs a success before its weight is learned.
    """
    assert params.max_episode_steps is not None, "checked when the environment was wrapped"
    return params.scale * transitions.next_potential / params.max_episode_steps


@register_reward_rule("gated", needs_full_rollout=True, uses_success_prob=True)
def gated(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale (Phi' - Phi) for episodes whose last success probability exceeds a gate. Arrays [T, N].

    An episode that is still running counts by its last step. Source: G-RA (gated reward accumulation).
    """
    passes_gate = last_per_episode(transitions.success_prob, number_episodes(transitions.done)) > MIN_SUCCESS_PROB
    gain = transitions.next_potential - transitions.potential
    return transitions.task_reward + params.scale * np.where(passes_gate, gain, 0.0)


@register_reward_rule("min_form", needs_full_rollout=True)
def min_form(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale w r, r the progress of a step and w = softmax(-r / T) over its episode. Arrays [T, N].

    The worst step of an episode dominates its return. Source: PURE (min-form credit assignment), T = 0.1.
    """
    gain = transitions.next_potential - transitions.potential
    weight = np.exp(-gain / MIN_FORM_TEMPERATURE)
    normalized_weight = weight / sum_per_episode(weight, number_episodes(transitions.done))
    return transitions.task_reward + params.scale * normalized_weight * gain


@register_reward_rule(
    "self_reference", needs_full_rollout=True, required_input="embedding", treats_timeout_as_terminal=True
)
def self_reference(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return `reference_reward` by the embedding of the last state of each episode. Arrays [T, N]."""
    assert transitions.embedding is not None
    return reference_reward(transitions, params, transitions.embedding)


@register_reward_rule(
    "trajectory_reference", needs_full_rollout=True, required_input="embedding", treats_timeout_as_terminal=True
)
def trajectory_reference(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return `reference_reward` by the mean embedding of each episode. Arrays [T, N].

    The whole trajectory is compared, as in SRPO, and not its last state alone. An episode that began before the rollout
    counts by its part.
    """
    assert transitions.embedding is not None
    mean = mean_per_episode(transitions.embedding, number_episodes(transitions.done))
    return reference_reward(transitions, params, mean)


def reference_reward(transitions: Transitions, params: RewardParams, embedding: FloatArray) -> FloatArray:
    """Return at the end scale times 1 for a success, 0.6 sigmoid(10 (0.5 - d)) for a failure. Arrays [T, N].

    d in [0, 1] is the distance to the nearest success among the embeddings [T, N, D], scaled over the failures of the
    rollout. Without any success, failures get 0. Source: SRPO. Its clusters of successes (DBSCAN, eps 0.5) are left
    out: standardized vectors of D dimensions are about sqrt(2 D) apart, so none would be in a cluster.
    """
    failed = transitions.done & ~transitions.is_success
    if transitions.diverged is not None:  # a diverged state would set the scale of the distances
        failed &= ~transitions.diverged
    reward = np.where(transitions.is_success, 1.0, 0.0)
    if transitions.is_success.any() and failed.any():
        distance = nearest_distance(embedding[failed], embedding[transitions.is_success])
        logit = SIGMOID_STEEPNESS * (SIGMOID_MIDPOINT - min_max_scale(distance))
        reward[failed] = MAX_FAILURE_REWARD / (1 + np.exp(-logit))
    return params.scale * reward


def nearest_distance(points: FloatArray, others: FloatArray) -> FloatArray:
    """Return the Euclidean distance [P] of points [P, D] to the nearest of others [O, D].

    Each dimension is in units of its standard deviation over all points and others.
    """
    all_points = np.concatenate([points, others])
    std = np.maximum(all_points.std(axis=0), 1e-6)
    return scipy.spatial.distance.cdist(points / std, others / std).min(axis=1)


def min_max_scale(values: FloatArray) -> FloatArray:
    """Return the values scaled to [0, 1]; all 0 if they are equal."""
    value_range = np.ptp(values)
    return (values - values.min()) / value_range if value_range > 0 else np.zeros_like(values)


@register_reward_rule("redistributed", needs_full_rollout=True, required_input="contribution")
def redistributed(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return scale c: the success of an episode, distributed over its steps by their contribution c. Arrays [T, N].

    `embodied_rm.rl.credit.attribution` estimates the contributions, which add up to the outcome of the episode. Source:
    SPA-RL (stepwise progress attribution). Its grounding term for invalid actions is left out: a robot can execute
    every action.
    """
    assert transitions.contribution is not None
    return params.scale * transitions.contribution


@register_reward_rule("implicit_preference", needs_full_rollout=True, required_input="preference_reward")
def implicit_preference(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale beta log(phi / pi), phi trained on pairs of better and worse episodes. Arrays [T, N].

    `embodied_rm.rl.credit.implicit_reward` trains phi. Source: OPRL (online process reward learning). Its two levels of
    advantages, each normalized, are one sum here.
    """
    assert transitions.preference_reward is not None
    return transitions.task_reward + params.scale * transitions.preference_reward


@register_reward_rule("implicit_outcome", needs_full_rollout=True, required_input="outcome_reward")
def implicit_outcome(transitions: Transitions, params: RewardParams) -> FloatArray:
    """Return task + scale beta log(phi / pi), phi trained on the outcomes of episodes. Arrays [T, N].

    `embodied_rm.rl.credit.implicit_reward` trains phi. Source: PRIME (process reinforcement through implicit rewards).
    """
    assert transitions.outcome_reward is not None
    return transitions.task_reward + params.scale * transitions.outcome_reward
