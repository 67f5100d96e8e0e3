"""Tests of the learned-reward wrapper with an environment that counts and a model that reads a table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_envs import CountingEnv, ImageModel, LookupModel, PointReachEnv

from embodied_rm.errors import UserError
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv

ROWS, STEPS, EPISODES = 5, 40, 50
GAMMA = 0.9


def tables(seed: int, valid_rate: float = 1.0, success_rate: float = 0.0) -> LookupModel:
    rng = np.random.default_rng(seed)
    shape = (ROWS, EPISODES, ROWS + 3)
    return LookupModel(
        progress=rng.random(shape).astype(np.float32),
        success=(rng.random(shape) < success_rate).astype(np.float32),
        valid=rng.random(shape) < valid_rate,
    )


def play(env: LearnedRewardEnv, steps: int = STEPS):
    """Every step's (observation before, reward, terminated, truncated, infos), arrays copied."""
    observation, _ = env.reset(seed=0)
    record = []
    for _ in range(steps):
        before = observation.copy()
        observation, reward, terminated, truncated, infos = env.step(np.zeros((ROWS, 1), np.float32))
        record.append(
            (before, reward, terminated, truncated, {k: np.copy(v) for k, v in infos.items() if k != "transitions"})
        )
    return record


def episodes_of(record, row: int):
    """The row's record cut into episodes: lists of (reward, terminated, truncated, infos at that row)."""
    episodes, current = [], []
    for _, reward, terminated, truncated, infos in record:
        current.append((reward[row], terminated[row], truncated[row], {k: v[row] for k, v in infos.items()}))
        if terminated[row] or truncated[row]:
            episodes.append(current)
            current = []
    return episodes


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    score_every=st.integers(1, 4),
    patience=st.integers(1, 2),
    valid_rate=st.sampled_from([1.0, 0.6]),
    success_rate=st.sampled_from([0.0, 0.4]),
)
def test_every_reward_belongs_to_its_own_row_and_episode(seed, score_every, patience, valid_rate, success_rate) -> None:
    """Replay each episode from the tables: staggered resets, short last chunks, invalid scores, successes."""
    model = tables(seed, valid_rate, success_rate)
    config = RewardConfig(score_every=score_every, success_patience=patience, progress_scale=2.0, success_reward=3.0)
    env = LearnedRewardEnv(CountingEnv(ROWS), model, config, GAMMA)
    record = play(env)
    for row in range(ROWS):
        for number, episode in enumerate(episodes_of(record, row)):
            table = model.progress[row, number]
            phi, streak, scored_at = table[0], 0, 0
            for t, (reward, terminated, truncated, infos) in enumerate(episode, start=1):
                next_phi = phi
                if t - scored_at == score_every or t == row + 2:
                    scored_at = t
                    if model.valid[row, number, t]:
                        next_phi = table[t]
                        streak = streak + 1 if model.success[row, number, t] else 0
                is_success = scored_at == t and model.valid[row, number, t] and streak >= patience
                assert terminated == is_success and truncated == (t == row + 2 and not is_success)
                assert infos["predicted_success"] == is_success
                expected = 3.0 * is_success + 2.0 * (GAMMA * next_phi * (not is_success) - phi)
                assert reward == pytest.approx(expected, abs=1e-5)
                phi = next_phi
            assert infos["final_obs"].tolist() == [row, number, len(episode)]


def test_returns_telescope() -> None:
    """Discounted shaping telescopes for all scoring intervals."""
    for score_every in (1, 2, 3):
        model = tables(score_every, valid_rate=0.7)
        record = play(LearnedRewardEnv(CountingEnv(ROWS), model, RewardConfig(score_every=score_every), GAMMA))
        for row in range(ROWS):
            for number, episode in enumerate(episodes_of(record, row)):
                total = sum(GAMMA**t * step[0] for t, step in enumerate(episode))
                last = episode[-1][3]["next_potential"]
                assert total == pytest.approx(GAMMA ** len(episode) * last - model.progress[row, number, 0], abs=1e-5)


def test_only_scheduled_frames_are_scored_and_each_once() -> None:
    score_every = 3
    model = tables(0)
    inner = CountingEnv(ROWS)
    record = play(LearnedRewardEnv(inner, model, RewardConfig(score_every=score_every), GAMMA))
    assert len(set(model.scored)) == len(model.scored)
    for row, _, step in model.scored:
        assert step % score_every == 0 or step == row + 2
    resets = sum(int((terminated | truncated).sum()) for _, _, terminated, truncated, _ in record)
    assert inner.rendered == ROWS + len(model.scored) + resets


def test_each_subgoal_needs_patience_and_only_the_last_ends_the_episode() -> None:
    """All points move to the origin and stay there; the instruction of row 1 has two subgoals."""
    inner = PointReachEnv(2)
    inner.instructions = ("reach the origin", "reach the origin; then reach the origin")
    env = LearnedRewardEnv(inner, ImageModel(), RewardConfig(success_patience=3), 1.0)
    env.reset(seed=0)
    inner.position[1] = inner.position[0]
    ended: dict[int, int] = {}
    returns = np.zeros(2)
    for step in range(20):
        _, reward, terminated, _, infos = env.step(-inner.position / 0.15)
        returns += np.where([row in ended for row in range(2)], 0, reward)
        assert 0 in ended or infos["next_potential"][1] <= 0.5
        ended |= {row: step for row in np.flatnonzero(terminated).tolist() if row not in ended}
    assert ended[1] == ended[0] + 3, "three predictions per subgoal"
    np.testing.assert_allclose(returns, 1.0, err_msg="one success; shaping telescopes across subgoals")


class FooledCameraEnv(PointReachEnv):
    """Its first camera shows a success from the start, its second one what is true."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.view_names = ("fooled", "honest")

    def render_views(self, rows):
        honest = super().render_views(rows)
        fooled = honest.copy()
        fooled[:, 0, 0, 0, 1] = 255
        return np.concatenate([fooled, honest], axis=1)


@pytest.mark.parametrize(("in_each_view", "ended_at"), [(False, 2), (True, 7)])
def test_a_success_that_one_camera_does_not_show_is_not_paid(in_each_view: bool, ended_at: int) -> None:
    """The model of all views looks at the first one. The point is near the origin after six steps."""
    inner = FooledCameraEnv(1)
    reward_config = RewardConfig(success_patience=3, success_in_each_view=in_each_view)
    env = LearnedRewardEnv(inner, ImageModel(), reward_config, 1.0)
    env.reset(seed=0)
    ended = [step for step in range(10) if env.step(-inner.position / np.linalg.norm(inner.position))[2][0]]
    assert ended[0] == ended_at


def test_the_observation_after_a_reset_is_the_first_of_the_next_episode() -> None:
    record = play(LearnedRewardEnv(CountingEnv(ROWS), tables(0), RewardConfig(), GAMMA))
    for (before, _, terminated, truncated, infos), (next_phi, *_) in itertools.pairwise(record):
        ended = terminated | truncated
        assert (infos["final_obs"][:, 2] == before[:, 2] + 1).all()
        assert (next_phi[ended, 2] == 0).all()
        assert (next_phi[ended, 1] == before[ended, 1] + 1).all()
        assert (next_phi[~ended] == infos["final_obs"][~ended]).all()


def test_scoring_does_not_change_observations() -> None:
    def observations(config: RewardConfig, seed: int):
        model = tables(seed)
        return [step[4]["final_obs"] for step in play(LearnedRewardEnv(CountingEnv(ROWS), model, config, GAMMA))]

    assert np.array_equal(observations(RewardConfig(), 0), observations(RewardConfig(score_every=4), 1))


def test_diverged_rows_are_not_scored_and_change_no_other_row() -> None:
    """Row 3 diverges in every second episode: its steps are masked, and the other rows do not change."""

    def diverges(row: int, episode: int, step: int) -> bool:
        return row == 3 and episode % 2 == 1 and step == 2

    clean = play(LearnedRewardEnv(CountingEnv(ROWS), tables(0), RewardConfig(), GAMMA))
    model = tables(0)
    env = LearnedRewardEnv(CountingEnv(ROWS, diverges), model, RewardConfig(), GAMMA)
    record = play(env)
    num_diverged = 0
    others = np.arange(ROWS) != 3
    for (_, reward, _, _, infos), (_, clean_reward, *_) in zip(record, clean, strict=True):
        assert np.isfinite(infos["final_obs"]).all()
        assert (
            np.isnan(reward[~infos["valid_transition"]]).all() and np.isfinite(reward[infos["valid_transition"]]).all()
        )
        assert np.array_equal(reward[others], clean_reward[others])
        num_diverged += int((~infos["valid_transition"]).sum())
    assert not any(diverges(*frame) for frame in model.scored)
    for number, episode in enumerate(episodes_of(record, 3)):
        assert len(episode) == (2 if number % 2 else 5)
    assert env.stats.diverged_episodes == num_diverged > 0


def test_statistics() -> None:
    model = tables(0, valid_rate=0.5, success_rate=0.3)
    env = LearnedRewardEnv(CountingEnv(ROWS), model, RewardConfig(success_patience=1), GAMMA)
    record = play(env)
    stats = env.pop_stats()
    assert stats.env_steps == ROWS * STEPS
    assert stats.episodes == sum(int((te | tr).sum()) for _, _, te, tr, _ in record)
    assert stats.predicted_successes == sum(int(te.sum()) for _, _, te, *_ in record)
    assert stats.num_scores == len(model.scored)
    assert stats.invalid_scores == sum(not model.valid[frame] for frame in model.scored)
    assert stats.positive_scores == stats.predicted_successes
    steps = [frame[2] for frame in model.scored if model.valid[frame]]
    assert stats.uncertainty == pytest.approx(0.01 * sum(steps)) and stats.ood_scored == len(steps)
    assert 0 < stats.ood_frames == sum(step > 2 for step in steps)
    ends = [
        1.0 if te[row] else infos["next_potential"][row]
        for _, _, te, tr, infos in record
        for row in np.flatnonzero((te | tr) & infos["valid_transition"])
    ]
    assert stats.final_potential == pytest.approx(sum(ends)) and 0 < sum(ends) < len(ends)
    assert stats.simulator_successes == 0
    assert env.stats.env_steps == 0


class LeakyEnv(CountingEnv):
    """Ends an episode at the success of the simulator."""

    def step(self, actions):
        observation, reward, _, timed_out, infos = super().step(actions)
        infos["success"] = self.count == 2
        return observation, reward, infos["success"], timed_out, infos


def test_environment_that_ends_at_its_own_success_raises() -> None:
    env = LearnedRewardEnv(LeakyEnv(ROWS), tables(0), RewardConfig(), GAMMA)
    with pytest.raises(UserError, match="ends_on_success=False"):
        play(env)


def test_unsupported_environments_raise() -> None:
    env = CountingEnv(2)
    learned = LearnedRewardEnv(env, tables(0), RewardConfig(), GAMMA)
    with pytest.raises(UserError, match="already has a learned reward"):
        LearnedRewardEnv(learned, tables(0), RewardConfig(), GAMMA)
    env.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    with pytest.raises(UserError, match=r"DISABLED, got .*NEXT_STEP"):
        LearnedRewardEnv(env, tables(0), RewardConfig(), GAMMA)
    blind = CountingEnv(2)
    del blind.view_names
    with pytest.raises(UserError, match="CountingEnv lacks view_names"):
        LearnedRewardEnv(blind, tables(0), RewardConfig(), GAMMA)


def test_metadata_has_same_step_autoreset() -> None:
    env = LearnedRewardEnv(CountingEnv(2), tables(0), RewardConfig(), GAMMA)
    assert env.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("score_every", 0),
        ("success_patience", 0),
        ("success_threshold", 1.5),
        ("progress_scale", -1.0),
        ("success_reward", -1.0),
    ],
)
def test_invalid_settings_raise(setting: str, value: float) -> None:
    with pytest.raises(UserError, match=setting):
        RewardConfig(**{setting: value})
