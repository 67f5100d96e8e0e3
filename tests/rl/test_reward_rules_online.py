"""The rewards of a clip in the audit equal those of `LearnedRewardEnv`."""

from __future__ import annotations

import numpy as np
import pytest
from rl_envs import CountingEnv, LookupModel

from embodied_rm.audit import AuditRewardConfig
from embodied_rm.audit.returns import compute_rewards, discounted_return, success_frame
from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import RULES
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.types import RewardOutput

ROWS = 12


def curve(value, success, valid=None) -> RewardOutput:
    value = np.asarray(value, np.float32)
    return RewardOutput(
        progress=value,
        valid=np.ones(len(value), bool) if valid is None else valid,
        subtask=np.zeros(len(value), np.int64),
        success=np.asarray(success, np.float32),
        uncertainty=0.01 * np.arange(len(value), dtype=np.float32),
    )


STEP_RULES = [
    name
    for name, rule in RULES.items()
    if rule.per_step and rule.required_input is None and rule.progress_source == "model"
]


@pytest.mark.parametrize("rule", STEP_RULES)
@pytest.mark.parametrize(
    ("score_every", "patience", "threshold", "uncertainty_penalty"),
    [(1, 1, 0.9, 0), (1, 3, 0.4, 2), (2, 1, 0.8, 0.5), (2, 2, 0.4, 0)],
)
def test_audit_rewards_equal_those_of_the_environment(
    score_every: int, patience: int, threshold: float, uncertainty_penalty: float, rule: str
) -> None:
    """Row i plays a clip of i + 3 frames once, with random progress, success and validity."""
    rng = np.random.default_rng(10 * score_every + patience)
    shape = (ROWS, ROWS + 2, ROWS + 3)
    model = LookupModel(rng.random(shape).astype(np.float32), rng.random(shape), rng.random(shape) > 0.2)
    reward_config = RewardConfig(
        rule=rule,
        progress_scale=0.7,
        score_every=score_every,
        success_patience=patience,
        success_threshold=threshold,
        uncertainty_penalty=uncertainty_penalty,
    )
    config = AuditRewardConfig(reward=reward_config, gamma=0.9)
    env = LearnedRewardEnv(CountingEnv(ROWS), model, config.reward, config.gamma)
    env.reset()
    rewards: list[list[float]] = [[] for _ in range(ROWS)]
    is_success, active = np.zeros(ROWS, bool), np.ones(ROWS, bool)
    while active.any():
        _, reward, terminated, truncated, _ = env.step(np.zeros((ROWS, 1)))
        for row in np.flatnonzero(active):
            rewards[row].append(float(reward[row]))
        is_success |= active & terminated
        active &= ~(terminated | truncated)
    assert is_success.any() and not is_success.all()
    for row in range(ROWS):
        video = slice(row + 3)
        columns = (table[row, 0, video] for table in (model.progress, model.success, model.valid))
        clip_curve = curve(*columns)
        np.testing.assert_allclose(compute_rewards(clip_curve, config), rewards[row], atol=1e-6)
        end = success_frame(clip_curve, config)
        assert (end is not None) == is_success[row] and (end is None or end == len(rewards[row]))


def test_finishing_beats_hovering_with_shaping_and_not_with_raw_progress() -> None:
    config = AuditRewardConfig(reward=RewardConfig(success_patience=2), gamma=0.9)
    rise = [0.0, 0.3, 0.6, 0.9]
    hover, finish = curve([*rise, *[0.9] * 16], np.zeros(20)), curve([*rise, *[1.0] * 16], [0] * 4 + [1] * 16)
    assert discounted_return(compute_rewards(hover, config), 0.9) == pytest.approx(0.9**19 * 0.9)
    assert discounted_return(compute_rewards(finish, config), 0.9) == pytest.approx(0.9**4)
    raw = AuditRewardConfig(reward=RewardConfig(rule="raw", success_patience=2), gamma=0.9)
    assert discounted_return(compute_rewards(hover, raw), 0.9) > discounted_return(compute_rewards(finish, raw), 0.9)


def test_predictions_count_from_the_start_frame() -> None:
    config = AuditRewardConfig(reward=RewardConfig(success_patience=3))
    clip_curve = curve(np.zeros(8), [1, 1, 1, 0, 0, 1, 1, 1])
    assert success_frame(clip_curve, config) == 7, "the first frame has no prediction"
    assert success_frame(clip_curve, config, start=6) is None
    assert success_frame(curve(np.zeros(4), np.ones(4)), config) == 3


@pytest.mark.parametrize("reward", [{"rule": "gated"}, {"rule": "sparse", "success_source": "simulator"}])
def test_rules_without_step_rewards_raise(reward: dict[str, str]) -> None:
    with pytest.raises(UserError, match="known step by step"):
        AuditRewardConfig(reward=RewardConfig(**reward))
