"""Success and rewards of a clip, from the same `EpisodeReward` as in training (pure)."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from embodied_rm.audit.test_set import AuditRewardConfig
from embodied_rm.client.episode_reward import EpisodeReward, EpisodeStep
from embodied_rm.rewards.rules import find_rule
from embodied_rm.rewards.transitions import FloatArray, RewardParams
from embodied_rm.types import RewardOutput

ROW = np.zeros(1, np.int64)
NOT_ENDED = np.zeros(1, bool)


def success_frame(curve: RewardOutput, config: AuditRewardConfig, start: int = 0) -> int | None:
    """Return the frame at which sustained predictions of success end the clip, counted from `start`, or None."""
    counted = replace(curve, success=np.where(np.arange(len(curve)) >= start, curve.success, 0))
    steps = enumerate(iterate_steps(counted, config), start=1)
    return next((frame for frame, step in steps if step.predicted_success[0]), None)


def compute_rewards(curve: RewardOutput, config: AuditRewardConfig) -> FloatArray:
    """Return the rewards [n] of the steps until success ends the clip, else until its last frame, a time limit."""
    return np.array([float(step.reward[0]) for step in iterate_steps(curve, config)])


def iterate_steps(curve: RewardOutput, config: AuditRewardConfig) -> Iterator[EpisodeStep]:
    """Step an episode over the predictions of a clip, one frame per step, until it ends."""
    last_frame = len(curve) - 1
    params = RewardParams(gamma=config.gamma, scale=config.reward.progress_scale, max_episode_steps=last_frame)
    rule = find_rule(config.reward.rule)
    episode = EpisodeReward(1, config.reward, config.gamma, lambda transitions: rule.compute(transitions, params))
    episode.reset(ROW, curve.progress[:1])
    for frame in range(1, last_frame + 1):
        timed_out = np.array([frame == last_frame])
        rows = episode.rows_to_score(timed_out)
        output = RewardOutput(**{name: column[frame : frame + 1] for name, column in vars(curve).items()})
        reward, scored_output = config.reward.success_reward, output if len(rows) else None
        step = episode.step(rows, scored_output, task_reward=reward, terminated=NOT_ENDED, truncated=timed_out)
        yield step
        if step.transitions.done[0]:
            return


def discounted_return(rewards: FloatArray, gamma: float) -> float:
    """Return the discounted sum of rewards [n]."""
    return float(np.dot(rewards, np.power(gamma, np.arange(len(rewards)))))
