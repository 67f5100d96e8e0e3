"""What a video would have earned: the verdict and the rewards of a curve, as `LearnedRewardEnv` pays them (pure)."""

from __future__ import annotations

import numpy as np

from embodied_rm.audit.test_set import AuditRewardConfig
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.shaping import hold_potential, potential_lower_bound
from embodied_rm.rewards.transitions import FloatArray, RewardParams, Transitions
from embodied_rm.types import Array, BoolArray, RewardOutput


def score_mask(length: int, score_every: int) -> BoolArray:
    """The frames that are scored, bool [T]: every `every`-th and the last; the first opens the episode."""
    frames = np.arange(length)
    return (frames > 0) & ((frames % score_every == 0) | (frames == length - 1))


def success_frame(curve: RewardOutput, config: AuditRewardConfig, start: int = 0) -> int | None:
    """The frame at which the sustained verdict ends the video as a success, counting frames from `start` on.

    None: it never does. A frame without a valid score neither continues nor breaks the streak.
    """
    streak = 0
    valid_scores = score_mask(len(curve), config.reward.score_every) & curve.valid
    for frame in np.flatnonzero(valid_scores):
        positive = frame >= start and curve.success[frame] >= config.reward.success_threshold
        streak = streak + 1 if positive else 0
        if streak >= config.reward.success_patience:
            return int(frame)
    return None


def compute_potentials(curve: RewardOutput, config: AuditRewardConfig) -> Array:
    """Phi at every frame, float32 [T]: held between two scores."""
    scored = score_mask(len(curve), config.reward.score_every) & curve.valid
    lower_bound = potential_lower_bound(curve.progress, curve.uncertainty, config.reward.uncertainty_penalty)
    phi = curve.progress.copy()
    for frame in range(1, len(phi)):
        phi[frame] = hold_potential(phi[frame - 1], lower_bound[frame], scored[frame])
    return phi


def compute_rewards(curve: RewardOutput, config: AuditRewardConfig) -> FloatArray:
    """The rewards [n] of the video's steps until the verdict ends it, else until its last frame, a time limit."""
    success_at, phi = success_frame(curve, config), compute_potentials(curve, config)
    last_frame = len(curve) - 1 if success_at is None else success_at
    step_indices = np.arange(1, last_frame + 1)
    is_success = step_indices == success_at
    scored = (score_mask(len(curve), config.reward.score_every) & curve.valid)[1 : last_frame + 1]
    # The last scored frame up to each step; the opening frame, of which nothing was said, where there is none.
    last_scored = np.maximum.accumulate(np.where(scored, step_indices, 0))
    transitions = Transitions(
        task_reward=config.reward.success_reward * is_success,
        is_success=is_success,
        terminated=is_success,
        done=step_indices == last_frame,
        potential=phi[:last_frame],
        next_potential=phi[1 : last_frame + 1],
        potential_change=np.where(last_scored > 0, phi[last_scored] - phi[np.maximum(last_scored - 1, 0)], 0.0),
        success_prob=np.where(last_scored > 0, curve.success[last_scored], 0.0),
    )
    params = RewardParams(gamma=config.gamma, scale=config.reward.progress_scale, max_episode_steps=len(curve) - 1)
    return find_rule(config.reward.rule).compute(transitions, params)


def discounted_return(rewards: FloatArray, gamma: float) -> float:
    """The discounted return of rewards [n]."""
    return float(np.dot(rewards, np.power(gamma, np.arange(len(rewards)))))
