"""A learned reward as a manager's term: environments in the order of mjlab and of Isaac Lab, with known images.

`tests/integrations/mjlab` has the same tests of mjlab itself.
"""

from __future__ import annotations

import sys
from copy import deepcopy
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import embodied_rm as erm
from embodied_rm.client import ShapingConfig
from embodied_rm.client.integrations.manager_term import success_term_reward

GAMMA = 0.9
LENGTHS = (2, 4, 3)
"""Steps of the episodes per row; the first row terminates, the others reach a limit."""
STEPS = 9
INSTRUCTION = "go"


def image(row: int, episode: int, t: int) -> np.ndarray:
    return np.random.default_rng([row, episode + 1, t]).integers(0, 256, (64, 64, 3), np.uint8)


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


class Manager:
    """Terms from a copy of their configuration, as both libraries make them: a class gets `cfg` and `env`."""

    def __init__(self, cfg: dict[str, SimpleNamespace], env: ManagerEnv) -> None:
        self.env, self.terms = env, deepcopy(cfg)
        self.terminated = torch.zeros(len(LENGTHS), dtype=torch.bool)
        self.time_outs = torch.zeros(len(LENGTHS), dtype=torch.bool)
        for term in self.terms.values():
            term.func = term.func(cfg=term, env=env) if isinstance(term.func, type) else term.func

    @property
    def active_terms(self) -> list[str]:
        return list(self.terms)

    def get_term_cfg(self, name: str) -> SimpleNamespace:
        return self.terms[name]

    def reset(self, env_ids: Any) -> None:
        for term in self.terms.values():
            if hasattr(term.func, "reset"):
                term.func.reset(env_ids=env_ids)

    def compute_ends(self) -> None:
        self.terminated[:], self.time_outs[:] = False, False
        for term in self.terms.values():
            flags = self.time_outs if term.time_out else self.terminated
            flags |= term.func(self.env, **term.params)

    def compute_reward(self) -> torch.Tensor:
        rewards = torch.zeros(len(LENGTHS))
        for term in self.terms.values():
            rewards += term.weight * term.func(self.env, **term.params)
        return rewards


class Sim:
    """States, the poses that `forward` computes from them, and the images of the poses that were drawn last."""

    def __init__(self) -> None:
        self.episode, self.t = np.full(len(LENGTHS), -1), np.zeros(len(LENGTHS), int)
        self.poses = [(0, 0, 0)] * len(LENGTHS)
        self.images = torch.zeros(len(LENGTHS), 64, 64, 3, dtype=torch.uint8)

    def forward(self) -> None:
        self.poses = list(zip(range(len(LENGTHS)), self.episode.tolist(), self.t.tolist(), strict=True))

    def sense(self) -> None:
        self.images[:] = torch.from_numpy(np.stack([image(*pose) for pose in self.poses]))

    render = sense


def reaches_end(env: ManagerEnv) -> torch.Tensor:
    return torch.tensor([row == 0 and env.sim.t[row] == length for row, length in enumerate(LENGTHS)])


def reaches_limit(env: ManagerEnv) -> torch.Tensor:
    return torch.tensor([row > 0 and env.sim.t[row] == length for row, length in enumerate(LENGTHS)])


class ManagerEnv:
    """Rows that end, are rewarded and are reset within a step; drawn after it (mjlab) or before (Isaac Lab)."""

    num_envs, step_dt = len(LENGTHS), 0.02

    def __init__(self, library: str, rewards: dict[str, Any], terminations: dict[str, Any], **cfg: Any) -> None:
        self.draws_first, self.sim = library == "isaaclab", Sim()
        data = SimpleNamespace(rgb=self.sim.images, output={"rgb": self.sim.images})
        camera_cfg = SimpleNamespace(data_types=["rgb"], update_period=0.0)
        scene = {"camera": SimpleNamespace(cfg=camera_cfg, data=data), "robot": SimpleNamespace(cfg=SimpleNamespace())}
        self.scene: Any = type("Scene", (dict,), {"write_data_to_sim": lambda scene: None})(scene)
        sim_cfg = SimpleNamespace(render_interval=2)
        defaults = {"is_finite_horizon": False, "decimation": 4, "sim": sim_cfg, "num_rerenders_on_reset": 0}
        self.cfg = SimpleNamespace(**{**defaults, **cfg})
        ends = {"end": SimpleNamespace(func=reaches_end, time_out=False, params={}),
                "limit": SimpleNamespace(func=reaches_limit, time_out=True, params={})}  # fmt: skip
        self.termination_manager = Manager({**ends, **terminations}, self)
        self.reward_manager = Manager(rewards, self)

    def reset(self, env_ids: Any = None) -> None:
        self.reset_rows(slice(None) if env_ids is None else env_ids)
        if not self.draws_first:
            self.draw()

    def reset_rows(self, env_ids: Any) -> None:
        self.sim.episode[env_ids] += 1
        self.sim.t[env_ids] = 0
        self.reward_manager.reset(env_ids)
        self.termination_manager.reset(env_ids)

    def draw(self) -> None:
        self.sim.forward()
        self.sim.sense()

    def step(self) -> torch.Tensor:
        self.sim.t += 1
        if self.draws_first:
            self.draw()
        self.termination_manager.compute_ends()
        rewards = self.reward_manager.compute_reward()
        ended = (self.termination_manager.terminated | self.termination_manager.time_outs).nonzero()[:, 0]
        if len(ended):
            self.reset_rows(ended)
        if not self.draws_first:
            self.draw()
        return rewards


@pytest.fixture(params=["mjlab", "isaaclab"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The library whose terms are tested. Isaac Lab's base class, which its managers ask for, only keeps `cfg`."""
    managers = ModuleType("isaaclab.managers")
    managers.ManagerTermBase = type("ManagerTermBase", (), {"__init__": lambda self, cfg, env: None})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "isaaclab", ModuleType("isaaclab"))
    monkeypatch.setitem(sys.modules, "isaaclab.managers", managers)
    return request.param


def find_class(library: str, kind: str) -> type:
    prefix = {"mjlab": "Mjlab", "isaaclab": "IsaacLab"}[library]
    return getattr(import_module(f"embodied_rm.client.integrations.{library}"), f"{prefix}{kind}Term")


def params(model: Any, **shaping: Any) -> dict[str, Any]:
    return {"make_client": lambda: erm.LocalClient(model), "cameras": {"front": "camera"}, "instruction": INSTRUCTION,
            "shaping": ShapingConfig(gamma=GAMMA, **shaping)}  # fmt: skip


def make_env(library: str, model: Any, num_terms: int = 1, **cfg: Any) -> ManagerEnv:
    reward_class = find_class(library, "Reward")
    terms = [SimpleNamespace(func=reward_class, weight=1.0, params=params(model)) for _ in range(num_terms)]
    return ManagerEnv(library, {str(index): term for index, term in enumerate(terms)}, {}, **cfg)


def expected_rewards(model: Any, *, limit_is_end: bool = False) -> np.ndarray:
    """By the definition, [T, N]: gamma Phi(s') - Phi(s), Phi of a terminal state being 0."""
    columns = []
    for row, length in enumerate(LENGTHS):
        column: list[float] = []
        for episode in range(STEPS):
            images = np.stack([image(row, episode, t) for t in range(length + 1)])
            phi = model.score(images, INSTRUCTION).progress.astype(np.float64)
            next_phi = phi[1:].copy()
            next_phi[-1] *= not (row == 0 or limit_is_end)
            column += (GAMMA * next_phi - phi[:-1]).tolist()
        columns.append(column[:STEPS])
    return np.array(columns).T


def run(env: ManagerEnv) -> np.ndarray:
    env.reset()
    return torch.stack([env.step() for _ in range(STEPS)]).numpy()


def test_terminal_states_are_scored_and_rows_start_anew_apart(library: str, model: Any) -> None:
    np.testing.assert_allclose(run(make_env(library, model)), expected_rewards(model), atol=1e-6)


def test_a_limit_of_a_finite_horizon_is_an_end(library: str, model: Any) -> None:
    rewards = run(make_env(library, model, is_finite_horizon=True))
    np.testing.assert_allclose(rewards, expected_rewards(model, limit_is_end=True), atol=1e-6)


def test_terms_beside_one_another_score_the_same_images(library: str, model: Any) -> None:
    np.testing.assert_allclose(run(make_env(library, model, num_terms=2)), 2 * expected_rewards(model), atol=1e-6)


@pytest.mark.parametrize("rows", [[1], torch.tensor([1]), slice(1, 2), np.array([False, True, False])])
def test_rows_of_any_form_start_anew(library: str, model: Any, rows: Any) -> None:
    env = make_env(library, model)
    env.reset()
    env.step()
    env.reset(rows)
    images = np.stack([image(1, 1, t) for t in range(2)])
    phi = model.score(images, INSTRUCTION).progress
    rewards = env.step()
    assert rewards[1].item() == pytest.approx(GAMMA * phi[1] - phi[0], abs=1e-6)
    assert rewards[2].item() == pytest.approx(expected_rewards(model)[1, 2], abs=1e-6)


def test_success_of_the_model_ends_a_row_and_pays(library: str, model: Any) -> None:
    images = [np.stack([image(row, 0, t) for t in range(2)]) for row in range(len(LENGTHS))]
    scores = [model.score(frames, INSTRUCTION) for frames in images]
    probabilities = [float(score.success[1]) for score in scores]
    best = int(np.argmax(probabilities))
    # Between the two largest: a batch of another size rounds otherwise.
    options = {"success_threshold": sum(sorted(probabilities)[-2:]) / 2, "success_patience": 1, "success_reward": 5.0}
    solved = SimpleNamespace(func=find_class(library, "Success"), time_out=False, params=params(model, **options))
    reward = SimpleNamespace(func=success_term_reward, weight=1.0, params={"success_term": "solved"})
    env = ManagerEnv(library, {"learned": reward}, {"solved": solved})
    env.reset()
    rewards = env.step()
    assert env.termination_manager.terminated.tolist() == [row == best for row in range(len(LENGTHS))]
    for row, score in enumerate(scores):
        expected = 5 - score.progress[0] if row == best else GAMMA * score.progress[1] - score.progress[0]
        assert rewards[row].item() == pytest.approx(expected, abs=1e-6)


def test_what_does_not_fit_is_refused(library: str, model: Any) -> None:
    success, reward = find_class(library, "Success"), find_class(library, "Reward")
    solved = SimpleNamespace(func=success, time_out=False, params=params(model))
    late = SimpleNamespace(func=reaches_end, time_out=False, params={})
    env = ManagerEnv(library, {}, {"solved": solved, "late": late})
    env.reset()
    with pytest.raises(ValueError, match="must be the last termination term, and 'late' follows it"):
        env.step()
    with pytest.raises(ValueError, match="leave out time_out=True"):
        ManagerEnv(library, {}, {"solved": SimpleNamespace(func=success, time_out=True, params=params(model))})
    wrong = {**params(model), "cameras": {"front": "robot"}}
    with pytest.raises(ValueError, match="'robot' is no camera with 'rgb' in its data_types; it has none"):
        ManagerEnv(library, {"learned": SimpleNamespace(func=reward, weight=1.0, params=wrong)}, {})
    of_end = SimpleNamespace(func=success_term_reward, weight=1.0, params={"success_term": "end"})
    env = ManagerEnv(library, {"learned": of_end}, {})
    env.reset()
    with pytest.raises(ValueError, match="'end' is not the success of a model"):
        env.step()


@pytest.mark.parametrize("library", ["isaaclab"], indirect=True)
def test_a_camera_that_misses_the_end_of_a_step_is_refused(library: str, model: Any) -> None:
    with pytest.raises(ValueError, match="render_interval=2 must divide decimation=3"):
        make_env(library, model, decimation=3)


@pytest.mark.parametrize("library", ["mjlab"], indirect=True)
def test_a_step_before_the_first_reset_is_refused(library: str, model: Any) -> None:
    with pytest.raises(ValueError, match="stepped that was never reset"):
        make_env(library, model).step()
