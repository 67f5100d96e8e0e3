"""The learned reward pays the same for the same episodes, however they are reset, and shaping telescopes."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from known_models import HashModel, digest_to_progress, initial_digest, next_digest
from services import serving

from embodied_rm.serve.build_client_wheel import build_client_wheel
from embodied_rm.serve.client.episode_scorer import ShapingConfig
from embodied_rm.serve.client.learned_reward import (
    LearnedReward,
    SingleLearnedReward,
    frames_from_observation,
    frames_from_render,
)
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.types import RewardOutput

LIFT = "lift the red cube"
LENGTHS = (3, 4, 6)
"""Steps of row i's episodes; those of even number end by failure or success, the others by the time limit."""
GAMMA = 0.9


def image(row: int, episode: int, step: int) -> np.ndarray:
    """What is seen there, and nowhere else: uint8 [8, 8, 3]."""
    return np.random.default_rng([row, episode, step]).integers(0, 256, (8, 8, 3), np.uint8)


class Counting(gym.vector.VectorEnv):
    """Rows whose episodes have known lengths, in any mode of resetting. A step pays 0.5, the last of an episode 2."""

    def __init__(self, mode: AutoresetMode) -> None:
        self.num_envs = len(LENGTHS)
        self.metadata = {"autoreset_mode": mode}
        self.mode = mode
        self.single_observation_space = gym.spaces.Dict({"pixels": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)})
        self.single_action_space = gym.spaces.Discrete(2)
        self.episode, self.time = np.full(self.num_envs, -1), np.zeros(self.num_envs, int)
        self.over = np.zeros(self.num_envs, bool)

    def reset(self, *, seed=None, options=None):
        # Gymnasium's SyncVectorEnv and AsyncVectorEnv take the mask out, too.
        self._begin(np.ones(self.num_envs, bool) if not options else options.pop("reset_mask"))
        return self._seen(), {}

    def step(self, actions):
        reset = self.over.copy() if self.mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        self._begin(reset)
        self.time[~reset] += 1
        ended = self.time >= np.array(LENGTHS)
        terminated = ended & (self.episode % 2 == 0)
        reward = np.where(reset, 0.0, np.where(ended, 2.0, 0.5))
        self.over, infos = ended, {}
        if self.mode is AutoresetMode.SAME_STEP and ended.any():
            infos = {"final_pixels": self._seen()["pixels"], "_final_pixels": ended}
            self._begin(ended)
        return self._seen(), reward, terminated, ended & ~terminated, infos

    def render(self):
        return tuple(self._seen()["pixels"])

    def _begin(self, mask: np.ndarray) -> None:
        self.episode[mask] += 1
        self.time[mask] = 0
        self.over = self.over & ~mask

    def _seen(self) -> dict[str, np.ndarray]:
        return {"pixels": np.stack([image(*where) for where in zip(range(3), self.episode, self.time, strict=True)])}


def final(env: Any, infos: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
    return {"front": infos["final_pixels"][rows]}


def potential(row: int, episode: int, step: int) -> float:
    """What `Hashing` says there."""
    digest = initial_digest(LIFT, image(row, episode, 0)[None])
    for t in range(1, step + 1):
        digest = next_digest(digest, image(row, episode, t)[None])
    return float(digest_to_progress(np.array([digest]))[0]) if step else 0.0


def played(
    url: str, mode: AutoresetMode, steps: int, shaping: ShapingConfig, **how: Any
) -> dict[tuple[int, int], list]:
    """(row, episode) -> its transitions: reward, terminated, truncated; whole episodes only."""
    told: dict[tuple[int, int], list] = {}
    whole: set[tuple[int, int]] = set()
    with RewardClient(url) as client:
        how.setdefault("views", frames_from_observation(front="pixels"))
        env = LearnedReward(Counting(mode), client, shaping, instructions=LIFT, **how)
        env.reset()
        for _ in range(steps):
            before = env.env.episode.copy()
            _, reward, terminated, truncated, infos = env.step(np.zeros(3, int))
            for row in range(3):
                if infos["stepped"][row]:
                    told.setdefault((row, before[row]), []).append((reward[row], terminated[row], truncated[row]))
                else:
                    assert reward[row] == 0
                if terminated[row] or truncated[row]:
                    whole.add((row, before[row]))
            if mode is AutoresetMode.DISABLED and (ended := terminated | truncated).any():
                env.reset(options={"reset_mask": ended})
        env.close()
    return {key: told[key] for key in whole}


@pytest.fixture(scope="module")
def url():
    with serving(HashModel()) as url:
        yield url


MODES = {
    AutoresetMode.DISABLED: {},
    AutoresetMode.NEXT_STEP: {"views": frames_from_render("front")},
    AutoresetMode.SAME_STEP: {"final_views": final},
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("every", [1, 2, 5])
def test_what_is_paid_telescopes_to_the_potentials_of_true_states_in_every_mode(url, mode, every) -> None:
    shaping = ShapingConfig(gamma=GAMMA, progress_scale=1.5, score_every=every)
    episodes = played(url, mode, 30, shaping, **MODES[mode])
    assert len(episodes) >= 10
    for (row, number), steps in episodes.items():
        length = LENGTHS[row]
        assert len(steps) == length and steps[-1][1] == (number % 2 == 0) and steps[-1][1] != steps[-1][2]
        discounted = sum(GAMMA**t * paid for t, (paid, _, _) in enumerate(steps))
        own = sum(GAMMA**t * (2.0 if t == length - 1 else 0.5) for t in range(length))
        last = 0.0 if steps[-1][1] else potential_scored(row, number, length, every)
        assert discounted == pytest.approx(own + 1.5 * GAMMA**length * last, abs=1e-5)


def test_nobody_is_asked_what_no_camera_shows(url) -> None:
    asked: list[int] = []

    def look(env: Any, observation: Any, rows: np.ndarray) -> dict[str, np.ndarray]:
        asked.append(len(rows))
        return {"front": observation["pixels"][rows]}

    assert played(url, AutoresetMode.DISABLED, 20, ShapingConfig(gamma=GAMMA, score_every=5), views=look)
    assert asked and 0 not in asked


def potential_scored(row: int, number: int, length: int, every: int) -> float:
    """The potential of the last state, of which the frames between two scores were never seen."""
    digest = initial_digest(LIFT, image(row, number, 0)[None])
    for t in [t for t in range(1, length + 1) if t % every == 0 or t == length]:
        digest = next_digest(digest, image(row, number, t)[None])
    return float(digest_to_progress(np.array([digest]))[0])


def test_the_modes_pay_the_same_for_the_same_episodes(url) -> None:
    shaping = ShapingConfig(gamma=GAMMA)
    told = [played(url, mode, 30, shaping, **how) for mode, how in MODES.items()]
    shared = set.intersection(*map(set, told))
    assert len(shared) >= 10
    for key in shared:
        np.testing.assert_allclose([step[0] for step in told[0][key]], [step[0] for step in told[1][key]], atol=1e-6)
        np.testing.assert_allclose([step[0] for step in told[0][key]], [step[0] for step in told[2][key]], atol=1e-6)
    row, number = 1, 1
    phi = [potential(row, number, t) for t in range(LENGTHS[row] + 1)]
    paid = [0.5 + GAMMA * after - before for before, after in pairwise(phi[:-1])]
    paid.append(2.0 + GAMMA * phi[-1] - phi[-2])  # by the time limit: its potential stays
    np.testing.assert_allclose([step[0] for step in told[0][row, number]], paid, atol=1e-6)


class Verdicts(HashModel):
    """Says "done" from the third frame on, and cannot judge the second of row 0's."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def step(self, memory, views):
        said, after = super().step(memory, views)
        self.seen += 1
        valid = np.array([self.seen != 2 or row for row in range(len(views))], bool)
        success = np.full(len(views), float(self.seen >= 3), np.float32)
        return RewardOutput(**{**vars(said), "success": success, "valid": valid}), after


def test_the_model_s_success_ends_an_episode_and_is_paid() -> None:
    shaping = ShapingConfig(gamma=GAMMA, success_patience=2)
    model = Verdicts()
    with serving(model) as url, RewardClient(url) as client:
        model.seen = 0  # the test that it passed before it was served counts for nothing
        env = LearnedReward(
            Counting(AutoresetMode.DISABLED),
            client,
            shaping,
            get_frames=frames_from_observation(front="pixels"),
            instructions=[LIFT] * 3,
            success_source="model",
            success_reward=3.0,
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
        # Row 2 needs six steps, and the model has said "done" twice by the fourth.
        assert [bool(end[2]) for end in ends] == [False, False, False, True] and infos["learned_success"][2]
        before = potential(2, 0, 3)
        assert rewards[3][2] == pytest.approx(3.0 - before, abs=1e-6)
        unscored = rewards[1][0]  # an unscored frame pays no progress: the potential before it, once discounted
        assert unscored == pytest.approx((GAMMA - 1) * potential(0, 0, 1), abs=1e-6)


class One(gym.Env):
    """Row 1 of `Counting`, alone; it fails in its even episodes."""

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
        seen = {"pixels": image(1, self.episode, self.time)}
        return seen, 2.0 if ended else 0.5, terminated, ended and not terminated, {}


def test_one_environment_is_paid_like_a_row_of_many(url) -> None:
    many = played(url, AutoresetMode.DISABLED, 12, ShapingConfig(gamma=GAMMA))
    with RewardClient(url) as client:
        env = SingleLearnedReward(
            One(),
            client,
            ShapingConfig(gamma=GAMMA),
            get_frames=frames_from_observation(front="pixels"),
            instruction=lambda env: LIFT,
        )
        for number in range(2):
            env.reset()
            for paid, terminated, truncated in many[1, number]:
                _, reward, over, limit, infos = env.step(0)
                assert reward == pytest.approx(paid) and (over, limit) == (terminated, truncated)
                assert 0 <= infos["next_potential"] <= 1
        env.close()


def test_what_does_not_fit_together_is_told_before_anything_is_judged(url) -> None:
    look = frames_from_observation(front="pixels")
    with RewardClient(url) as client:

        def made(mode: AutoresetMode, **how: Any) -> LearnedReward:
            shaping = ShapingConfig(gamma=GAMMA)
            return LearnedReward(Counting(mode), client, shaping, get_frames=look, **{"instructions": LIFT, **how})

        with pytest.raises(ValueError, match="final_views"):
            made(AutoresetMode.SAME_STEP)
        with pytest.raises(ValueError, match="DISABLED"):
            made(AutoresetMode.NEXT_STEP, success="model")
        with pytest.raises(ValueError, match="success must be"):
            made(AutoresetMode.DISABLED, success="nobody")
        with pytest.raises(ValueError, match="3 instructions, got 1"):
            made(AutoresetMode.DISABLED, instructions=[LIFT]).reset()
        with pytest.raises(ValueError, match="gamma must be"):
            ShapingConfig(gamma=0)
        with pytest.raises(ValueError, match="never reset"):
            env = made(AutoresetMode.DISABLED)
            env.env.reset()
            env.step(np.zeros(3, int))


CLIENT = sorted((Path(__file__).parents[2] / "embodied_rm" / "serve" / "client").glob("*.py"))
REWARDS_DIR = CLIENT[0].parents[2] / "rewards"
TAKEN_ALONG = [
    *CLIENT,
    REWARDS_DIR / "__init__.py",
    REWARDS_DIR / "shaping.py",
    CLIENT[0].parents[1] / "__init__.py",
]


@pytest.mark.parametrize("path", TAKEN_ALONG, ids=lambda path: path.stem)
def test_the_client_needs_numpy_and_httpx_and_a_python_of_2020(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    allowed = {"__future__", "collections", "dataclasses", "json", "random", "secrets", "time", "typing"}
    allowed |= {"numpy", "httpx", "gymnasium" if path.stem == "learned_reward" else "numpy"}
    inside = {f"embodied_rm.serve.client.{one.stem}" for one in CLIENT}
    inside |= {"embodied_rm.serve.client", "embodied_rm.rewards.shaping"}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            assert name in inside or name.split(".")[0] in allowed, f"{path}: {name}"
        if isinstance(node, ast.Call):  # keywords that Python 3.9 does not know
            keywords = {keyword.arg for keyword in node.keywords}
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            assert not (called == "zip" and "strict" in keywords) and "kw_only" not in keywords
            assert not (called == "dataclass" and "slots" in keywords)


def test_the_client_s_wheel_is_all_that_it_needs(url, tmp_path) -> None:
    """Unpacked somewhere, with nothing else of ours where Python looks."""
    wheel = build_client_wheel(tmp_path)
    assert wheel.read_bytes() == build_client_wheel(tmp_path / "again").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "alone")
        names = {name for name in archive.namelist() if name.endswith(".py")}
        record = next(name for name in archive.namelist() if name.endswith("RECORD"))
        assert archive.read(record).decode().count("\n") == len(archive.namelist())
    root = CLIENT[0].parents[3]
    assert names == {str(path.relative_to(root)) for path in (*TAKEN_ALONG, root / "embodied_rm" / "__init__.py")}
    trial = f"""
import sys
sys.path[:0] = [{str(tmp_path / "alone")!r}]
from embodied_rm.serve.client.reward_client import RewardClient
import embodied_rm, numpy as np
assert embodied_rm.__file__.startswith({str(tmp_path)!r}), embodied_rm.__file__
with RewardClient({url!r}) as client:
    frames = {{"front": np.zeros((2, 8, 8, 3), np.uint8)}}
    client.reset([0, 1], [0, 0], ["lift"] * 2, frames)
    assert client.step([0, 1], [0, 0], [1, 1], frames).valid.all()
assert not {{"torch", "gymnasium", "msgspec", "starlette"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", trial], check=True, cwd=tmp_path, timeout=60)
