"""What the audit says a video would have earned is what `LearnedRewardEnv` pays for it."""

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


AT_ONCE = [
    name
    for name, rule in RULES.items()
    if rule.per_step and rule.required_input is None and rule.progress_source == "model"
]


@pytest.mark.parametrize("rule", AT_ONCE)
@pytest.mark.parametrize(
    ("every", "patience", "threshold", "caution"), [(1, 1, 0.9, 0), (1, 3, 0.4, 2), (2, 1, 0.8, 0.5), (2, 2, 0.4, 0)]
)
def test_a_video_earns_what_the_environment_pays(
    every: int, patience: int, threshold: float, caution: float, rule: str
) -> None:
    """Row i plays a video of i + 3 frames once; progress, success and what cannot be scored are drawn at random."""
    rng = np.random.default_rng(10 * every + patience)
    shape = (ROWS, ROWS + 2, ROWS + 3)
    model = LookupModel(rng.random(shape).astype(np.float32), rng.random(shape), rng.random(shape) > 0.2)
    paying = RewardConfig(
        rule=rule,
        progress_scale=0.7,
        score_every=every,
        success_patience=patience,
        success_threshold=threshold,
        uncertainty_penalty=caution,
    )
    rules = AuditRewardConfig(reward=paying, gamma=0.9)
    env = LearnedRewardEnv(CountingEnv(ROWS), model, rules.reward, rules.gamma)
    env.reset()
    paid: list[list[float]] = [[] for _ in range(ROWS)]
    achieved, playing = np.zeros(ROWS, bool), np.ones(ROWS, bool)
    while playing.any():
        _, reward, terminated, truncated, _ = env.step(np.zeros((ROWS, 1)))
        for row in np.flatnonzero(playing):
            paid[row].append(float(reward[row]))
        achieved |= playing & terminated
        playing &= ~(terminated | truncated)
    assert achieved.any() and not achieved.all()
    for row in range(ROWS):
        video = slice(row + 3)
        columns = (table[row, 0, video] for table in (model.progress, model.success, model.valid))
        seen = curve(*columns)
        np.testing.assert_allclose(compute_rewards(seen, rules), paid[row], atol=1e-6)
        end = success_frame(seen, rules)
        assert (end is not None) == achieved[row] and (end is None or end == len(paid[row]))


def test_finishing_beats_hovering_by_what_the_verdict_pays_and_raw_progress_turns_that_round() -> None:
    rules = AuditRewardConfig(reward=RewardConfig(success_patience=2), gamma=0.9)
    rise = [0.0, 0.3, 0.6, 0.9]
    hover, finish = curve([*rise, *[0.9] * 16], np.zeros(20)), curve([*rise, *[1.0] * 16], [0] * 4 + [1] * 16)
    assert discounted_return(compute_rewards(hover, rules), 0.9) == pytest.approx(0.9**19 * 0.9)
    assert discounted_return(compute_rewards(finish, rules), 0.9) == pytest.approx(0.9**4)
    raw = AuditRewardConfig(reward=RewardConfig(rule="raw", success_patience=2), gamma=0.9)
    assert discounted_return(compute_rewards(hover, raw), 0.9) > discounted_return(compute_rewards(finish, raw), 0.9)


def test_a_verdict_counts_from_where_it_is_asked_for() -> None:
    rules = AuditRewardConfig(reward=RewardConfig(success_patience=3))
    seen = curve(np.zeros(8), [1, 1, 1, 0, 0, 1, 1, 1])
    assert success_frame(seen, rules) == 7, "the first frame opens the video and is nobody's verdict"
    assert success_frame(seen, rules, start=6) is None
    assert success_frame(curve(np.zeros(4), np.ones(4)), rules) == 3


@pytest.mark.parametrize("reward", [{"rule": "gated"}, {"rule": "sparse", "success_source": "simulator"}])
def test_videos_are_not_paid_by_what_they_do_not_show(reward: dict[str, str]) -> None:
    with pytest.raises(UserError, match="known step by step"):
        AuditRewardConfig(reward=RewardConfig(**reward))
