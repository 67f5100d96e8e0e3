"""What a rollout is paid, from the environments to the learner, is what the papers' formulas say of the model's table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from math import exp

import numpy as np
import pytest
import torch
from rl_envs import CountingEnv, KnownMemory, LookupModel

from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rewards.rules import RULES
from embodied_rm.rl.credit.rollout_rewards import RolloutRewards
from embodied_rm.rl.envs.learned_env import LearnedRewardEnv
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.learner.ppo import PPO, PPOConfig
from embodied_rm.rl.refine import make_learner, run_iteration
from embodied_rm.rl.refine_config import RefineConfig

ROWS, ROLLOUT, EPISODES = 7, 24, 30
LIMIT = ROWS + 1
GAMMA, SCALE, SUCCESS = 0.9, 0.7, 1.3
CAUTION, SPREAD = 2.0, 0.01
"""Spreads that are taken off, and by how much `LookupModel`'s grows with a step."""
PATIENCE, THRESHOLD = 2, 0.5


class Limited(CountingEnv):
    max_episode_steps = LIMIT


class Remembering(KnownMemory):
    """Embeds an image as the numbers painted in it."""

    def embedding(self) -> np.ndarray:
        return self.seen.astype(float)


class EmbeddingLookup(LookupModel):
    def reset(self, views, instructions, goal=None):
        return Remembering(**vars(super().reset(views, instructions, goal)))


def table(seed: int) -> EmbeddingLookup:
    rng = np.random.default_rng(seed)
    shape = (ROWS, EPISODES, LIMIT + 1)
    return EmbeddingLookup(rng.random(shape).astype(np.float32), rng.random(shape), rng.random(shape) > 0.15)


def breaks_down(row: int, episode: int, step: int) -> bool:
    return row == 3 and episode % 3 == 1 and step == 2


@dataclass(frozen=True)
class Made:
    """A step of one environment, as the table tells it."""

    at: tuple[int, int, int]
    """Row, episode and step of the state it led to."""
    before: float
    after: float
    change: float
    """What the last score changed of the progress."""
    done: float
    """What the last score said of success."""
    scored: tuple[int, int, int]
    """Row, episode and step of the image last scored."""
    achieved: bool
    over: bool
    broken: bool

    @property
    def task(self) -> float:
        return SUCCESS * self.achieved

    @property
    def progress(self) -> float:
        return self.after - self.before


def lived(model: LookupModel, row: int, every: int, steps: int) -> list[Made]:
    """The first steps of a row: an episode lasts `row` + 2 of them, if it is not said to be done before."""
    made: list[Made] = []
    for episode in range(EPISODES):
        phi, change, done, streak, last = float(model.progress[row, episode, 0]), 0.0, 0.0, 0, 0
        for step in range(1, row + 3):
            at, before, over, achieved = (row, episode, step), phi, step == row + 2, False
            broken = breaks_down(*at)
            if not broken and (step == last + every or over):
                last = step
                if model.valid[at]:
                    phi = min(max(float(model.progress[at]) - CAUTION * SPREAD * step, 0.0), 1.0)
                    change, done = phi - before, float(model.success[at])
                    streak = streak + 1 if done >= THRESHOLD else 0
                    achieved = streak >= PATIENCE
            over = over or achieved or broken
            made.append(Made(at, before, phi, change, done, (row, episode, last), achieved, over, broken))
            if over:
                break
    return made[:steps]


def cut(made: list[Made]) -> list[list[Made]]:
    """The episodes of one row of a rollout, as far as they are there."""
    videos: list[list[Made]] = [[]]
    for step in made:
        videos[-1].append(step)
        if step.over:
            videos.append([])
    return [video for video in videos if video]


@dataclass(frozen=True)
class Known:
    """What the formulas take from beyond an episode."""

    videos: list[list[Made]]
    """Those of the rollout."""
    first_ends: list[float]
    """Progress at the ends of the first rollout's episodes, 1 of a success."""
    blend: float


def each(pay: Callable[[Made], float]) -> Callable[[list[Made], Known], list[float]]:
    """A formula that pays every step by itself."""
    return lambda video, known: [pay(step) for step in video]


def at_the_end(pay: Callable[[Made, Known], float]) -> Callable[[list[Made], Known], list[float]]:
    """A formula that pays the ends of episodes alone."""
    return lambda video, known: [pay(step, known) if step.over else 0.0 for step in video]


def hop(step: Made) -> float:
    room = 1 - step.before if step.progress >= 0 else step.before
    return step.progress / room


def held(step: Made) -> float:
    contrast = 0 if abs(step.change) <= 0.01 else (1 if step.change > 0 else -1)
    return SCALE * ((contrast + 1) / 2 + step.after + (step.done >= 0.5)) / 3


def by_time(step: Made) -> float:
    """RynnValue: r + kappa (gamma Phi' - Phi), Phi the negative remaining time; -Phi alone at success."""
    left, still_left = LIMIT * (1 - step.before), LIMIT * (1 - step.after)
    if step.achieved:
        return SCALE * 0.1 * left
    return -1 + SCALE * 0.1 * (left - GAMMA * still_left)


def by_quarters(step: Made, known: Known) -> float:
    return SCALE if step.achieved else SCALE * int(4 * min(step.after, 0.999999)) / 4


def by_references(step: Made, known: Known) -> float:
    end = 1.0 if step.achieved else step.after
    return SCALE * sum(1 / (1 + exp(-10 * (end - r))) for r in known.first_ends) / len(known.first_ends)


def through_the_gate(video: list[Made], known: Known) -> list[float]:
    opened = video[-1].done > 0.5
    return [step.task + SCALE * step.progress * opened for step in video]


def by_the_worst(video: list[Made], known: Known) -> list[float]:
    """PURE: softmax(-r / 0.1) over the episode."""
    whole = sum(exp(-step.progress / 0.1) for step in video)
    return [step.task + SCALE * step.progress * exp(-step.progress / 0.1) / whole for step in video]


def by_likeness(step: Made, known: Known) -> float:
    """SRPO: 0.6 sigmoid(10 (0.5 - d)), d the distance to the nearest success, 0 to 1 over the failures."""
    ends = [video[-1] for video in known.videos if video[-1].over]
    won = [np.array(end.scored, float) for end in ends if end.achieved]
    lost = {end.at: np.array(end.scored, float) for end in ends if not end.achieved and not end.broken}
    unit = np.std([*won, *lost.values()], axis=0)
    far = {at: min(float(np.linalg.norm((here - there) / unit)) for there in won) for at, here in lost.items()}
    if step.achieved:
        return SCALE
    near, wide = min(far.values()), max(far.values()) - min(far.values())
    return SCALE * 0.6 / (1 + exp(-10 * (0.5 - (far[step.at] - near) / wide))) if step.at in far else 0.0


FORMULAS: dict[str, Callable[[list[Made], Known], list[float]]] = {
    "sparse": each(lambda step: step.task),
    "shaped": each(lambda step: step.task + SCALE * (GAMMA * step.after * (not step.achieved) - step.before)),
    "difference": each(lambda step: step.task + SCALE * step.progress),
    "raw": each(lambda step: step.task + SCALE * step.after),
    "hold": each(held),
    "delta": each(lambda step: step.task + SCALE * hop(step)),
    "negative_time": each(by_time),
    "terminal_ordinal": at_the_end(by_quarters),
    "sigmoid_reference": at_the_end(by_references),
    "blended": lambda video, known: [step.task + known.blend * SCALE * step.after for step in video],
    "gated": through_the_gate,
    "min_form": by_the_worst,
    "self_reference": at_the_end(by_likeness),
}


@dataclass(frozen=True)
class Loop:
    """Environments, a learner, and the rewards that it was given."""

    env: LearnedRewardEnv
    learner: PPO
    rollout_rewards: RolloutRewards
    config: RefineConfig
    first: np.ndarray
    """What is observed first."""
    buffers: list[RolloutBuffer]

    def run(self, rollouts: int) -> list[float]:
        """Learn from so many rollouts; the blend that each was paid with."""
        observation, blends = self.first, []
        for iteration in range(rollouts):
            blends.append(float(self.rollout_rewards.state_dict()["auxiliary_weight"]))
            observation, _ = run_iteration(self.env, self.learner, self.rollout_rewards, observation, iteration, self.config)
        return blends


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Callable[[LearnedRewardEnv, int], Loop]:
    def begin(env: LearnedRewardEnv, steps: int) -> Loop:
        ppo = PPOConfig(gamma=GAMMA, num_minibatches=2, epochs=1)
        config = RefineConfig(rollout_steps=steps, reward=env.config, ppo=ppo)
        first, _ = env.reset()
        torch.manual_seed(0)
        learner = make_learner(GaussianPolicy(PolicySpec(obs_dim=3, action_dim=1, hidden=(8,))), config, 3)
        buffers: list[RolloutBuffer] = []
        batch = RolloutBuffer.make_batch

        def noting(buffer: RolloutBuffer, *words, **how):
            buffers.append(buffer)
            return batch(buffer, *words, **how)

        monkeypatch.setattr(RolloutBuffer, "make_batch", noting)
        return Loop(env, learner, RolloutRewards(env.rule, env.params, env.critic_obs_dim, 0), config, first, buffers)

    return begin


def asked(rule: str, every: int) -> RewardConfig:
    return RewardConfig(
        rule=rule, progress_scale=SCALE, success_reward=SUCCESS, score_every=every, uncertainty_penalty=CAUTION,
        success_patience=PATIENCE, success_threshold=THRESHOLD,
    )  # fmt: skip


def test_every_rule_has_a_formula_here_but_the_simulators_and_the_one_that_is_learned() -> None:
    assert RULES.keys() - FORMULAS.keys() == {"dense", "redistributed"}


@pytest.mark.parametrize(("rule", "every"), list(product(FORMULAS, [1, 3])))
def test_a_rollout_is_paid_what_the_formula_says_of_the_table(rule: str, every: int, begun) -> None:
    """Two rollouts in a row: successes, time limits, faults, unscored frames, and episodes that the border cuts."""
    model = table(every)
    loop = begun(LearnedRewardEnv(Limited(ROWS, breaks_down), model, asked(rule, every), GAMMA), ROLLOUT)
    blends = loop.run(2)
    rows = [lived(model, row, every, 2 * ROLLOUT) for row in range(ROWS)]
    first_ends: list[float] = []
    met = np.zeros(4, int)
    for number, buffer in enumerate(loop.buffers):
        here = slice(number * ROLLOUT, (number + 1) * ROLLOUT)
        videos = [cut(made[here]) for made in rows]
        ends = [video[-1] for each_row in videos for video in each_row]
        first_ends = first_ends or [1.0 if e.achieved else e.after for e in ends if e.over and not e.broken]
        known = Known([video for each_row in videos for video in each_row], first_ends, blends[number])
        for row, mine in enumerate(videos):
            paid = np.concatenate([FORMULAS[rule](video, known) for video in mine])
            sound = np.concatenate([[not video[-1].broken] * len(video) for video in mine])
            np.testing.assert_allclose(buffer.reward[sound, row], paid[sound], atol=1e-5, err_msg=f"row {row}")
            assert buffer.valid[sound, row].all()
        met += np.sum([(e.achieved, e.over and not e.achieved, e.broken, not e.over) for e in ends], axis=0)
    assert (met > 1).all(), "successes, failures, faults, episodes that the border cuts"
    if rule == "blended":
        assert blends[0] == 1 != blends[1], "what it does for the task moved it"


@pytest.mark.parametrize("every", [1, 3])
def test_what_is_redistributed_is_what_the_estimator_says_of_each_step(every: int, begun) -> None:
    """Of the state that the step led to, before any reset, and the progress held there."""
    model = table(every)
    env = LearnedRewardEnv(Limited(ROWS, breaks_down), model, asked("redistributed", every), GAMMA)
    loop = begun(env, ROLLOUT)
    loop.run(1)
    (buffer,), attribution = loop.buffers, loop.rollout_rewards._contribution_estimator
    assert attribution is not None
    for row in range(ROWS):
        made = lived(model, row, every, ROLLOUT)
        sound = np.array([not step.broken for step in made])
        with torch.no_grad():
            said = attribution.contribution_net(torch.tensor([[*step.at, step.after] for step in made])).numpy()
        np.testing.assert_allclose(buffer.reward[sound, row], SCALE * said[sound], atol=1e-5)


def test_what_is_redistributed_adds_up_to_what_the_episode_was_worth(begun) -> None:
    """Rows whose episodes all end with the rollout, seen again and again until the estimator knows them."""
    rows, steps = 3, 12
    model = table(0)
    model.success[:], model.valid[:] = 0.0, True
    for row, episode in product(range(rows), range(EPISODES)):
        model.success[row, episode, row + 1 : row + 3] = (row + episode) % 2
    loop = begun(LearnedRewardEnv(CountingEnv(rows), model, asked("redistributed", 1), GAMMA), steps)
    loop.run(1)
    for _ in range(40):
        paid = loop.rollout_rewards.compute_rewards(loop.buffers[0], loop.learner.policy)
    for row in range(rows):
        videos = cut(lived(model, row, 1, steps))
        assert [video[-1].achieved for video in videos] == [(row + episode) % 2 == 1 for episode in range(len(videos))]
        sums = np.add.reduceat(paid[:, row], np.cumsum([0, *map(len, videos[:-1])]))
        np.testing.assert_allclose(sums, [SCALE * video[-1].task for video in videos], atol=0.05)
