"""Rewards of rollouts, from environment to learner, equal the formulas of the papers on known tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import exp

import numpy as np
import pytest
import torch
from rl_envs import CountingEnv, KnownState, LookupModel

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import RULES
from embodied_rm.rl.credit.attribution import ContributionEstimator
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.iteration import make_learner, run_iteration
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_rm.rl.refine_config import RefineConfig

ROWS, ROLLOUT, EPISODES = 7, 24, 30
LIMIT = ROWS + 1
GAMMA, SCALE, SUCCESS = 0.9, 0.7, 1.3
UNCERTAINTY_PENALTY, UNCERTAINTY_PER_STEP = 2.0, 0.01
"""Uncertainty penalty, and growth of the uncertainty of `LookupModel` per step."""
PATIENCE, THRESHOLD = 2, 0.5


class Limited(CountingEnv):
    max_episode_steps = LIMIT


class EmbeddingState(KnownState):
    """Embeds an image as its numbers."""

    def embedding(self) -> np.ndarray:
        return self.frame.astype(float)


class EmbeddingLookup(LookupModel):
    def reset(self, views, instructions, goal=None):
        return EmbeddingState(**vars(super().reset(views, instructions, goal)))


def table(seed: int) -> EmbeddingLookup:
    rng = np.random.default_rng(seed)
    shape = (ROWS, EPISODES, LIMIT + 1)
    return EmbeddingLookup(rng.random(shape).astype(np.float32), rng.random(shape), rng.random(shape) > 0.15)


def diverges(row: int, episode: int, step: int) -> bool:
    return row == 3 and episode % 3 == 1 and step == 2


@dataclass(frozen=True)
class Step:
    """A transition of one environment, replayed from the table."""

    at: tuple[int, int, int]
    """Row, episode and step of the next state."""
    before: float
    after: float
    change: float
    """Change of the progress at the last score."""
    done: float
    """Success probability of the last score."""
    scored: tuple[int, int, int]
    """Row, episode and step of the last scored image."""
    is_success: bool
    ended: bool
    diverged: bool

    @property
    def task(self) -> float:
        return SUCCESS * self.is_success

    @property
    def progress(self) -> float:
        return self.after - self.before


def replay(model: LookupModel, row: int, score_every: int, steps: int) -> list[Step]:
    """Replay the first steps of a row. An episode has `row` + 2 steps, or fewer if the model predicts success."""
    steps_of_row: list[Step] = []
    for episode in range(EPISODES):
        phi, change, done, streak, last = float(model.progress[row, episode, 0]), 0.0, 0.0, 0, 0
        for step in range(1, row + 3):
            at, before, ended, is_success = (row, episode, step), phi, step == row + 2, False
            diverged = diverges(*at)
            if not diverged and (step == last + score_every or ended):
                last = step
                if model.valid[at]:
                    phi = min(
                        max(float(model.progress[at]) - UNCERTAINTY_PENALTY * UNCERTAINTY_PER_STEP * step, 0.0), 1.0
                    )
                    change, done = phi - before, float(model.success[at])
                    streak = streak + 1 if done >= THRESHOLD else 0
                    is_success = streak >= PATIENCE
            ended = ended or is_success or diverged
            steps_of_row.append(Step(at, before, phi, change, done, (row, episode, last), is_success, ended, diverged))
            if ended:
                break
    return steps_of_row[:steps]


def split_episodes(steps_of_row: list[Step]) -> list[list[Step]]:
    """Split the steps of one row into episodes."""
    videos: list[list[Step]] = [[]]
    for step in steps_of_row:
        videos[-1].append(step)
        if step.ended:
            videos.append([])
    return [video for video in videos if video]


@dataclass(frozen=True)
class FormulaInputs:
    """Inputs of the formulas beyond one episode."""

    videos: list[list[Step]]
    """Episodes of the rollout."""
    first_ends: list[float]
    """Final progress of the episodes of the first rollout; 1 for a success."""
    auxiliary_weight: float


def each(formula: Callable[[Step], float]) -> Callable[[list[Step], FormulaInputs], list[float]]:
    """Return a formula of single steps."""
    return lambda video, inputs: [formula(step) for step in video]


def at_the_end(formula: Callable[[Step, FormulaInputs], float]) -> Callable[[list[Step], FormulaInputs], list[float]]:
    """Return a formula of the last steps of episodes; the others have reward 0."""
    return lambda video, inputs: [formula(step, inputs) if step.ended else 0.0 for step in video]


def hop(step: Step) -> float:
    room = 1 - step.before if step.progress >= 0 else step.before
    return step.progress / room


def hold_reward(step: Step) -> float:
    contrast = 0 if abs(step.change) <= 0.01 else (1 if step.change > 0 else -1)
    return SCALE * ((contrast + 1) / 2 + step.after + (step.done >= 0.5)) / 3


def negative_time_reward(step: Step) -> float:
    """RynnValue: r + kappa (gamma Phi' - Phi), Phi the negative remaining time; -Phi alone at success."""
    left, still_left = LIMIT * (1 - step.before), LIMIT * (1 - step.after)
    if step.is_success:
        return SCALE * 0.1 * left
    return -1 + SCALE * 0.1 * (left - GAMMA * still_left)


def ordinal_reward(step: Step, inputs: FormulaInputs) -> float:
    return SCALE if step.is_success else SCALE * int(4 * min(step.after, 0.999999)) / 4


def reference_reward(step: Step, inputs: FormulaInputs) -> float:
    end = 1.0 if step.is_success else step.after
    return SCALE * sum(1 / (1 + exp(-10 * (end - r))) for r in inputs.first_ends) / len(inputs.first_ends)


def gated_rewards(video: list[Step], inputs: FormulaInputs) -> list[float]:
    passes_gate = video[-1].done > 0.5
    return [step.task + SCALE * step.progress * passes_gate for step in video]


def min_form_rewards(video: list[Step], inputs: FormulaInputs) -> list[float]:
    """PURE: softmax(-r / 0.1) over the episode."""
    total = sum(exp(-step.progress / 0.1) for step in video)
    return [step.task + SCALE * step.progress * exp(-step.progress / 0.1) / total for step in video]


def last_state(video: list[Step]) -> np.ndarray:
    return np.array(video[-1].scored, float)


def mean_state(video: list[Step]) -> np.ndarray:
    return np.mean([step.scored for step in video], axis=0)


def success_distance_reward(point: Callable[[list[Step]], np.ndarray], step: Step, inputs: FormulaInputs) -> float:
    """SRPO: 0.6 sigmoid(10 (0.5 - d)), d the distance to the nearest success, 0 to 1 over the failures."""
    videos = [video for video in inputs.videos if video[-1].ended]
    successes = [point(video) for video in videos if video[-1].is_success]
    failures = {video[-1].at: point(video) for video in videos if not video[-1].is_success and not video[-1].diverged}
    unit = np.std([*successes, *failures.values()], axis=0)
    distance = {
        at: min(float(np.linalg.norm((here - there) / unit)) for there in successes) for at, here in failures.items()
    }
    if step.is_success:
        return SCALE
    near, wide = min(distance.values()), max(distance.values()) - min(distance.values())
    return SCALE * 0.6 / (1 + exp(-10 * (0.5 - (distance[step.at] - near) / wide))) if step.at in distance else 0.0


FORMULAS: dict[str, Callable[[list[Step], FormulaInputs], list[float]]] = {
    "sparse": each(lambda step: step.task),
    "shaped": each(lambda step: step.task + SCALE * (GAMMA * step.after * (not step.is_success) - step.before)),
    "difference": each(lambda step: step.task + SCALE * step.progress),
    "raw": each(lambda step: step.task + SCALE * step.after),
    "hold": each(hold_reward),
    "delta": each(lambda step: step.task + SCALE * hop(step)),
    "negative_time": each(negative_time_reward),
    "terminal_ordinal": at_the_end(ordinal_reward),
    "sigmoid_reference": at_the_end(reference_reward),
    "blended": lambda video, inputs: [
        step.task + inputs.auxiliary_weight * SCALE * step.after / LIMIT for step in video
    ],
    "gated": gated_rewards,
    "min_form": min_form_rewards,
    "self_reference": at_the_end(partial(success_distance_reward, last_state)),
    "trajectory_reference": at_the_end(partial(success_distance_reward, mean_state)),
}


@dataclass(frozen=True)
class Loop:
    """Environment and learner, and the buffers of its rollouts."""

    env: LearnedRewardEnv
    learner: PPO
    rollout_rewards: RolloutRewards
    config: RefineConfig
    first: np.ndarray
    """First observation."""
    buffers: list[RolloutBuffer]

    def run(self, rollouts: int) -> list[float]:
        """Run rollouts and updates, and return the auxiliary weight of each."""
        observation, auxiliary_weights = self.first, []
        for iteration in range(rollouts):
            auxiliary_weights.append(float(self.rollout_rewards.state_dict()["auxiliary_weight"]))
            observation, _ = run_iteration(
                self.env, self.learner, self.rollout_rewards, observation, iteration, self.config
            )
        return auxiliary_weights


@pytest.fixture
def start_loop(monkeypatch: pytest.MonkeyPatch) -> Callable[[LearnedRewardEnv, int], Loop]:
    def begin(env: LearnedRewardEnv, steps: int) -> Loop:
        ppo = PPOConfig(gamma=GAMMA, num_minibatches=2, epochs=1)
        config = RefineConfig(rollout_steps=steps, reward=env.config, ppo=ppo)
        first, _ = env.reset()
        torch.manual_seed(0)
        learner = make_learner(GaussianPolicy(PolicySpec(obs_dim=3, action_dim=1, hidden=(8,))), config, 3)
        buffers: list[RolloutBuffer] = []
        batch = RolloutBuffer.make_batch

        def record(buffer: RolloutBuffer, *args, **kwargs):
            buffers.append(buffer)
            return batch(buffer, *args, **kwargs)

        monkeypatch.setattr(RolloutBuffer, "make_batch", record)
        return Loop(
            env,
            learner,
            RolloutRewards(env.rule, env.params, learner.policy, env.critic_obs_dim, 0),
            config,
            first,
            buffers,
        )

    return begin


def make_config(rule: str, score_every: int) -> RewardConfig:
    return RewardConfig(
        rule=rule,
        progress_scale=SCALE,
        success_reward=SUCCESS,
        score_every=score_every,
        uncertainty_penalty=UNCERTAINTY_PENALTY,
        success_patience=PATIENCE,
        success_threshold=THRESHOLD,
    )


def test_formulas_cover_all_rules_but_those_of_the_simulator_and_of_trained_networks() -> None:
    trained = {"redistributed", "implicit_preference", "implicit_outcome"}
    assert RULES.keys() - FORMULAS.keys() == {"dense", "program"} | trained


@pytest.mark.parametrize(("rule", "score_every"), list(product(FORMULAS, [1, 3])))
def test_rewards_equal_the_formula(rule: str, score_every: int, start_loop) -> None:
    """Two consecutive rollouts: successes, time limits, divergences, invalid frames, and episodes across both."""
    model = table(score_every)
    loop = start_loop(LearnedRewardEnv(Limited(ROWS, diverges), model, make_config(rule, score_every), GAMMA), ROLLOUT)
    auxiliary_weights = loop.run(2)
    rows = [replay(model, row, score_every, 2 * ROLLOUT) for row in range(ROWS)]
    first_ends: list[float] = []
    counts = np.zeros(4, int)
    for number, buffer in enumerate(loop.buffers):
        rollout_slice = slice(number * ROLLOUT, (number + 1) * ROLLOUT)
        videos = [split_episodes(steps_of_row[rollout_slice]) for steps_of_row in rows]
        ends = [video[-1] for each_row in videos for video in each_row]
        first_ends = first_ends or [1.0 if e.is_success else e.after for e in ends if e.ended and not e.diverged]
        inputs = FormulaInputs(
            [video for each_row in videos for video in each_row], first_ends, auxiliary_weights[number]
        )
        for row, row_episodes in enumerate(videos):
            rewards = np.concatenate([FORMULAS[rule](video, inputs) for video in row_episodes])
            valid = np.concatenate([[not video[-1].diverged] * len(video) for video in row_episodes])
            np.testing.assert_allclose(buffer.reward[valid, row], rewards[valid], atol=1e-5, err_msg=f"row {row}")
            assert buffer.valid[valid, row].all()
        counts += np.sum([(e.is_success, e.ended and not e.is_success, e.diverged, not e.ended) for e in ends], axis=0)
    assert (counts > 1).all(), "successes, failures, divergences, unfinished episodes"
    if rule == "blended":
        assert auxiliary_weights[0] == 1 != auxiliary_weights[1], "the weight was updated"


@pytest.mark.parametrize("score_every", [1, 3])
def test_redistributed_rewards_are_those_of_the_estimator(score_every: int, start_loop) -> None:
    """Its inputs are the true next state, before any reset, and the held progress."""
    model = table(score_every)
    env = LearnedRewardEnv(Limited(ROWS, diverges), model, make_config("redistributed", score_every), GAMMA)
    loop = start_loop(env, ROLLOUT)
    loop.run(1)
    (buffer,), attribution = loop.buffers, loop.rollout_rewards.estimator
    assert isinstance(attribution, ContributionEstimator)
    for row in range(ROWS):
        steps_of_row = replay(model, row, score_every, ROLLOUT)
        valid = np.array([not step.diverged for step in steps_of_row])
        with torch.no_grad():
            contributions = attribution.contribution_net(
                torch.tensor([[*step.at, step.after] for step in steps_of_row])
            ).numpy()
        np.testing.assert_allclose(buffer.reward[valid, row], SCALE * contributions[valid], atol=1e-5)


def test_redistributed_rewards_sum_to_the_episode_reward(start_loop) -> None:
    """All episodes end with the rollout; the estimator is trained on them repeatedly."""
    rows, steps = 3, 12
    model = table(0)
    model.success[:], model.valid[:] = 0.0, True
    for row, episode in product(range(rows), range(EPISODES)):
        model.success[row, episode, row + 1 : row + 3] = (row + episode) % 2
    loop = start_loop(LearnedRewardEnv(CountingEnv(rows), model, make_config("redistributed", 1), GAMMA), steps)
    loop.run(1)
    for _ in range(40):
        rewards = loop.rollout_rewards.compute_rewards(loop.buffers[0], loop.learner.policy)
    for row in range(rows):
        videos = split_episodes(replay(model, row, 1, steps))
        assert [video[-1].is_success for video in videos] == [
            (row + episode) % 2 == 1 for episode in range(len(videos))
        ]
        sums = np.add.reduceat(rewards[:, row], np.cumsum([0, *map(len, videos[:-1])]))
        np.testing.assert_allclose(sums, [SCALE * video[-1].task for video in videos], atol=0.05)
