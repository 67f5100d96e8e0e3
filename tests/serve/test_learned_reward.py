"""The learned reward is the same for the same episodes in every autoreset mode, and its shaping telescopes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from known_models import HashModel, digest_to_progress, initial_digest, next_digest
from services import LIFT, serving

from embodied_rm.client.episode_scorer import ShapingConfig
from embodied_rm.client.frame_getters import frames_from_observation, frames_from_render
from embodied_rm.client.learned_reward import (
    LearnedReward,
    SingleLearnedReward,
)
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.types import RewardOutput

LENGTHS = (3, 4, 6)
"""Length of the episodes of each row; even episodes terminate, odd ones are truncated."""
GAMMA = 0.9


def image(row: int, episode: int, step: int) -> np.ndarray:
    """Return the image of a step, unique to it: uint8 [8, 8, 3]."""
    return np.random.default_rng([row, episode, step]).integers(0, 256, (8, 8, 3), np.uint8)


class CountingVectorEnv(gym.vector.VectorEnv):
    """Episodes of known lengths, in any autoreset mode. The reward is 0.5, and 2 at the last step of an episode."""

    def __init__(self, mode: AutoresetMode) -> None:
        self.num_envs = len(LENGTHS)
        self.metadata = {"autoreset_mode": mode}
        self.mode = mode
        self.single_observation_space = gym.spaces.Dict({"pixels": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)})
        self.single_action_space = gym.spaces.Discrete(2)
        self.episode, self.time = np.full(self.num_envs, -1), np.zeros(self.num_envs, int)
        self.over = np.zeros(self.num_envs, bool)

    def reset(self, *, seed=None, options=None):
        # SyncVectorEnv and AsyncVectorEnv of Gymnasium remove the mask, too.
        self._start_episodes(np.ones(self.num_envs, bool) if not options else options.pop("reset_mask"))
        return self._observe(), {}

    def step(self, actions):
        reset = self.over.copy() if self.mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        self._start_episodes(reset)
        self.time[~reset] += 1
        ended = self.time >= np.array(LENGTHS)
        terminated = ended & (self.episode % 2 == 0)
        reward = np.where(reset, 0.0, np.where(ended, 2.0, 0.5))
        self.over, infos = ended, {}
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            infos = {"final_pixels": self._observe()["pixels"], "_final_pixels": ended}
            self._start_episodes(ended)
        return self._observe(), reward, terminated, ended & ~terminated, infos

    def render(self):
        return tuple(self._observe()["pixels"])

    def _start_episodes(self, mask: np.ndarray) -> None:
        self.episode[mask] += 1
        self.time[mask] = 0
        self.over = self.over & ~mask

    def _observe(self) -> dict[str, np.ndarray]:
        return {"pixels": np.stack([image(*key) for key in zip(range(3), self.episode, self.time, strict=True)])}


def final_frames(env: Any, infos: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {"front": infos["final_pixels"][rows]}


def potential(row: int, episode: int, step: int) -> float:
    """Return the potential of `HashModel` at a step when every frame was scored."""
    digest = initial_digest(LIFT, image(row, episode, 0)[None])
    for t in range(1, step + 1):
        digest = next_digest(digest, image(row, episode, t)[None])
    return float(digest_to_progress(np.array([digest]))[0]) if step else 0.0


def play(
    url: str, mode: AutoresetMode, steps: int, shaping: ShapingConfig, **options: Any
) -> dict[tuple[int, int], list]:
    """Return (row, episode) -> its transitions (reward, terminated, truncated), complete episodes only."""
    transitions: dict[tuple[int, int], list] = {}
    complete: set[tuple[int, int]] = set()
    with RewardClient(url) as client:
        options.setdefault("get_frames", frames_from_observation(front="pixels"))
        env = LearnedReward(CountingVectorEnv(mode), client, shaping, instructions=LIFT, **options)
        env.reset()
        for _ in range(steps):
            before = env.env.episode.copy()
            _, reward, terminated, truncated, infos = env.step(np.zeros(3, int))
            for row in range(3):
                key = (row, before[row])
                if infos["valid_transition"][row]:
                    transitions.setdefault(key, []).append((reward[row], terminated[row], truncated[row]))
                else:
                    assert reward[row] == 0
                if terminated[row] or truncated[row]:
                    complete.add(key)
            if mode is AutoresetMode.DISABLED and (ended := terminated | truncated).any():
                env.reset(options={"reset_mask": ended})
        env.close()
    return {key: transitions[key] for key in complete}


@pytest.fixture(scope="module")
def url():
    with serving(HashModel()) as url:
        yield url


MODE_OPTIONS = {
    AutoresetMode.DISABLED: {},
    AutoresetMode.NEXT_STEP: {"get_frames": frames_from_render("front")},
    AutoresetMode.SAME_STEP: {"get_final_frames": final_frames},
}


@pytest.mark.parametrize("mode", MODE_OPTIONS, ids=str)
@pytest.mark.parametrize("score_every", [1, 2, 5])
def test_returns_telescope_to_the_potentials_of_true_states_in_every_mode(url, mode, score_every) -> None:
    shaping = ShapingConfig(gamma=GAMMA, progress_scale=1.5, score_every=score_every)
    episodes = play(url, mode, 30, shaping, **MODE_OPTIONS[mode])
    assert len(episodes) >= 10
    for (row, episode), steps in episodes.items():
        length = LENGTHS[row]
        _, terminated, truncated = steps[-1]
        assert len(steps) == length and terminated == (episode % 2 == 0) and terminated != truncated
        discounted = sum(GAMMA**t * reward for t, (reward, _, _) in enumerate(steps))
        task_return = sum(GAMMA**t * (2.0 if t == length - 1 else 0.5) for t in range(length))
        final = 0.0 if terminated else final_potential(row, episode, length, score_every)
        assert discounted == pytest.approx(task_return + 1.5 * GAMMA**length * final, abs=1e-5)


def test_frames_are_read_only_for_steps_that_are_scored(url) -> None:
    requested: list[int] = []

    def get_frames(env: Any, observation: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        requested.append(len(rows))
        return {"front": observation["pixels"][rows]}

    shaping = ShapingConfig(gamma=GAMMA, score_every=5)
    assert play(url, AutoresetMode.DISABLED, 20, shaping, get_frames=get_frames)
    assert requested and 0 not in requested


def final_potential(row: int, episode: int, length: int, score_every: int) -> float:
    """Return the potential of `HashModel` at the last step when only some frames were scored."""
    digest = initial_digest(LIFT, image(row, episode, 0)[None])
    for t in [t for t in range(1, length + 1) if t % score_every == 0 or t == length]:
        digest = next_digest(digest, image(row, episode, t)[None])
    return float(digest_to_progress(np.array([digest]))[0])


def test_all_modes_give_the_same_rewards(url) -> None:
    shaping = ShapingConfig(gamma=GAMMA)
    results = [play(url, mode, 30, shaping, **options) for mode, options in MODE_OPTIONS.items()]
    shared = set.intersection(*map(set, results))
    assert len(shared) >= 10
    for key in shared:
        rewards = [[step[0] for step in result[key]] for result in results]
        np.testing.assert_allclose(rewards[0], rewards[1], atol=1e-6)
        np.testing.assert_allclose(rewards[0], rewards[2], atol=1e-6)
    row, episode = 1, 1
    phi = [potential(row, episode, t) for t in range(LENGTHS[row] + 1)]
    expected = [0.5 + GAMMA * after - before for before, after in pairwise(phi[:-1])]
    expected.append(2.0 + GAMMA * phi[-1] - phi[-2])  # truncated: its potential stays
    np.testing.assert_allclose([step[0] for step in results[0][row, episode]], expected, atol=1e-6)


def test_infos_have_the_potential_of_the_true_next_state(url) -> None:
    """A row that is reset within the step keeps the potential of its last state in the infos of that step."""
    with RewardClient(url) as client:
        env = LearnedReward(
            CountingVectorEnv(AutoresetMode.SAME_STEP),
            client,
            ShapingConfig(gamma=GAMMA),
            get_frames=frames_from_observation(front="pixels"),
            get_final_frames=final_frames,
            instructions=LIFT,
        )
        env.reset()
        for _ in range(LENGTHS[0]):
            *_, infos = env.step(np.zeros(3, int))
        env.close()
    assert infos["next_potential"][0] == pytest.approx(potential(0, 0, LENGTHS[0]), abs=1e-6)


class SuccessFromThirdFrame(HashModel):
    """A model that predicts success from the third frame on, and cannot score the second frame of row 0."""

    def __init__(self) -> None:
        super().__init__()
        self.num_steps = 0

    def step(self, state, views):
        output, next_state = super().step(state, views)
        self.num_steps += 1
        valid = np.array([self.num_steps != 2 or row for row in range(len(views))], bool)
        success = np.full(len(views), float(self.num_steps >= 3), np.float32)
        return RewardOutput(**{**vars(output), "success": success, "valid": valid}), next_state


def test_success_of_the_model_ends_an_episode_and_is_rewarded() -> None:
    shaping = ShapingConfig(gamma=GAMMA, success_patience=2, success_reward=3.0)
    model = SuccessFromThirdFrame()
    with serving(model) as url, RewardClient(url) as client:
        model.num_steps = 0  # the check before serving does not count
        env = LearnedReward(
            CountingVectorEnv(AutoresetMode.DISABLED),
            client,
            shaping,
            get_frames=frames_from_observation(front="pixels"),
            instructions=[LIFT] * 3,
            success_source="model",
        )
        env.reset()
        rewards, ends = [], []
        for _ in range(4):
            _, reward, terminated, truncated, infos = env.step(np.zeros(3, int))
            rewards.append(reward)
            ends.append(terminated.copy())
            assert not (terminated & truncated).any()
            if (ended := terminated | truncated).any():
                env.reset(options={"reset_mask": ended})
        assert env.scorer.num_invalid_frames == 1
        # Row 2 has six steps, and the model predicted success twice by the fourth.
        assert [bool(end[2]) for end in ends] == [False, False, False, True] and infos["predicted_success"][2]
        before = potential(2, 0, 3)
        assert rewards[3][2] == pytest.approx(3.0 - before, abs=1e-6)
        invalid_reward = rewards[1][0]  # an invalid frame adds no progress: the potential before it, discounted once
        assert invalid_reward == pytest.approx((GAMMA - 1) * potential(0, 0, 1), abs=1e-6)


class SingleCountingEnv(gym.Env):
    """Row 1 of `CountingVectorEnv` alone."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Dict({"pixels": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)})
        self.action_space = gym.spaces.Discrete(2)
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.time = self.episode + 1, 0
        return {"pixels": image(1, self.episode, 0)}, {}

    def step(self, action):
        self.time += 1
        ended = self.time == LENGTHS[1]
        terminated = ended and self.episode % 2 == 0
        observation = {"pixels": image(1, self.episode, self.time)}
        return observation, 2.0 if ended else 0.5, terminated, ended and not terminated, {}


def test_one_environment_gets_the_rewards_of_a_row(url) -> None:
    episodes = play(url, AutoresetMode.DISABLED, 12, ShapingConfig(gamma=GAMMA))
    with RewardClient(url) as client:
        env = SingleLearnedReward(
            SingleCountingEnv(),
            client,
            ShapingConfig(gamma=GAMMA),
            get_frames=frames_from_observation(front="pixels"),
            instruction=lambda env: LIFT,
        )
        for episode in range(2):
            env.reset()
            for expected_reward, terminated, truncated in episodes[1, episode]:
                _, reward, is_terminated, is_truncated, infos = env.step(0)
                assert reward == pytest.approx(expected_reward)
                assert (is_terminated, is_truncated) == (terminated, truncated)
                assert 0 <= infos["next_potential"] <= 1
        env.close()


def test_invalid_arguments_raise_before_anything_is_scored(url) -> None:
    with RewardClient(url) as client:

        def make_env(mode: AutoresetMode, **options: Any) -> LearnedReward:
            options = {"instructions": LIFT, "get_frames": frames_from_observation(front="pixels"), **options}
            return LearnedReward(CountingVectorEnv(mode), client, ShapingConfig(gamma=GAMMA), **options)

        with pytest.raises(ValueError, match="get_final_frames"):
            make_env(AutoresetMode.SAME_STEP, get_frames=frames_from_render("front"))
        with pytest.raises(ValueError, match="DISABLED"):
            make_env(AutoresetMode.NEXT_STEP, success_source="model")
        with pytest.raises(ValueError, match="success_source must be"):
            make_env(AutoresetMode.DISABLED, success_source="other")
        with pytest.raises(ValueError, match="3 instructions, got 1"):
            make_env(AutoresetMode.DISABLED, instructions=[LIFT]).reset()
        with pytest.raises(ValueError, match="gamma must be"):
            ShapingConfig(gamma=0)
        with pytest.raises(ValueError, match="never reset"):
            env = make_env(AutoresetMode.DISABLED)
            env.env.reset()
            env.step(np.zeros(3, int))
