"""A learned reward as a term of mjlab: which pictures it scores, and what it pays. `make test-mjlab` runs this."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from mjlab.envs import ManagerBasedRlEnv
from mjlab.managers.command_manager import CommandTerm, CommandTermCfg
from mjlab.managers.reward_manager import RewardTermCfg
from mjlab.managers.termination_manager import TerminationTermCfg
from mjlab.utils.os import dump_yaml
from push_env import STEP_S, has_arrived, push_env_cfg

import embodied_rm as erm
from embodied_rm.client import ShapingConfig
from embodied_rm.client.integrations.manager_term import success_term_reward
from embodied_rm.client.integrations.mjlab import MjlabRewardTerm, MjlabSuccessTerm

GAMMA = 0.9
ROWS, STEPS = 3, 14
NUM_STEPS = 12
"""Time limit of an episode."""
PUSHES = torch.tensor([[1.0], [0.8], [0.1]])
"""Actions per row: the first row arrives soonest, the last one never."""


@pytest.fixture(scope="module")
def model() -> erm.ProgressRewardModel:
    return erm.load_reward_model()


class RecordingClient(erm.LocalClient):
    """A client in this process that keeps the images it scores, per environment."""

    instances: ClassVar[list[RecordingClient]] = []

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.opened: list[list[np.ndarray]] = [[] for _ in range(ROWS)]
        self.scored: list[list[np.ndarray]] = [[] for _ in range(ROWS)]
        RecordingClient.instances.append(self)

    def reset(self, env_ids: Any, episode_ids: Any, instructions: Any, frames: Any, **options: Any) -> Any:
        for row, image in zip(env_ids, frames["front"], strict=True):
            self.opened[row].append(image.numpy())
        return super().reset(env_ids, episode_ids, instructions, frames, **options)

    def step(self, env_ids: Any, episode_ids: Any, steps: Any, frames: Any, **options: Any) -> Any:
        for row, image in zip(env_ids, frames["front"], strict=True):
            self.scored[row].append(image.numpy())
        return super().step(env_ids, episode_ids, steps, frames, **options)


def params(model: Any, **shaping: Any) -> dict[str, Any]:
    return {
        "make_client": lambda: RecordingClient(model),
        "cameras": {"front": "above"},
        "instruction": "push it to the right",
        "shaping": ShapingConfig(gamma=GAMMA, **shaping),
    }


def make_env(
    *, arrives: bool = True, rewards: Any = None, terminations: Any = None, **options: Any
) -> ManagerBasedRlEnv:
    cfg = push_env_cfg(ROWS, NUM_STEPS, **{"scale_rewards_by_dt": False, **options})
    cfg.rewards = rewards or {}
    if arrives:
        cfg.terminations["arrived"] = TerminationTermCfg(func=has_arrived)
    cfg.terminations |= terminations or {}
    return ManagerBasedRlEnv(cfg, "cpu")


class Episodes:
    """What happens without any term: images and ends per row, of an environment that the caller resets."""

    def __init__(self, **options: Any) -> None:
        env = make_env(auto_reset=False, **options)
        env.reset()
        self.images = [[[image]] for image in self.draw(env)]
        """Row -> episode -> images."""
        self.terminated, self.positions = [], []
        for _ in range(STEPS):
            observation, _, terminated, truncated, _ = env.step(PUSHES)
            self.terminated.append(terminated.tolist())
            self.positions.append(observation["actor"].clone())
            for episodes, image in zip(self.images, self.draw(env), strict=True):
                episodes[-1].append(image)
            ended = (terminated | truncated).nonzero()[:, 0]
            if len(ended):
                env.reset(env_ids=ended)
                for row in ended.tolist():
                    self.images[row].append([self.draw(env)[row]])

    def draw(self, env: ManagerBasedRlEnv) -> list[np.ndarray]:
        return list(env.scene["above"].data.rgb.numpy().copy())

    def rewards(self, model: erm.ProgressRewardModel, *, limit_is_end: bool = False) -> np.ndarray:
        """By the definition, [T, N]: gamma Phi(s') - Phi(s), Phi of a terminal state being 0."""
        columns = []
        for row, episodes in enumerate(self.images):
            column: list[float] = []
            for images in episodes:
                phi = model.score(np.stack(images), "push it to the right").progress.astype(np.float64)
                next_phi = phi[1:].copy()
                last = len(column) + len(next_phi) - 1
                ended = len(next_phi) and len(images) > 1 and images is not episodes[-1]
                if ended and (self.terminated[last][row] or limit_is_end):
                    next_phi[-1] = 0
                column += (GAMMA * next_phi - phi[:-1]).tolist()
            columns.append(column)
        return np.array(columns).T


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    return Episodes()


def run(env: ManagerBasedRlEnv) -> np.ndarray:
    """The rewards of `STEPS` steps, [T, N]."""
    env.reset()
    return torch.stack([env.step(PUSHES)[1].clone() for _ in range(STEPS)]).numpy()


def test_rows_end_apart_and_in_both_ways(episodes: Episodes) -> None:
    """The tests below cover an arrival, a time limit, and rows that end while the others continue."""
    lengths = [[len(images) - 1 for images in row] for row in episodes.images]
    assert lengths[2][0] == NUM_STEPS and lengths[0][0] < lengths[1][0] < NUM_STEPS
    assert any(episodes.terminated[lengths[0][0] - 1]) and not any(episodes.terminated[NUM_STEPS - 1])


def test_the_images_of_terminal_and_of_first_states_are_scored(model: Any, episodes: Episodes) -> None:
    env = make_env(rewards={"learned": RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))})
    rewards = run(env)
    client = RecordingClient.instances[-1]
    for row, expected in enumerate(episodes.images):
        opened = [images[0] for images in expected]
        if len(expected[-1]) == 1:  # mjlab has reset the row in the last step, and the term opens it in the next
            opened.pop()
        np.testing.assert_array_equal(client.opened[row], opened)
        np.testing.assert_array_equal(client.scored[row], [image for images in expected for image in images[1:]])
    np.testing.assert_allclose(rewards, episodes.rewards(model), atol=1e-6)
    assert np.abs(rewards).max() > 1e-3


def test_the_discounted_rewards_of_an_episode_sum_to_its_potentials(model: Any, episodes: Episodes) -> None:
    rewards = run(make_env(rewards={"learned": RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))}))
    for row, expected in enumerate(episodes.images):
        length = len(expected[0]) - 1
        phi = model.score(np.stack(expected[0]), "push it to the right").progress
        last = 0.0 if episodes.terminated[length - 1][row] else GAMMA**length * phi[-1]
        total = (GAMMA ** np.arange(length) * rewards[:length, row]).sum()
        assert total == pytest.approx(last - phi[0], abs=1e-6)


def test_drawing_leaves_the_physics_alone(model: Any, episodes: Episodes) -> None:
    env = make_env(
        rewards={"learned": RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))}, auto_reset=True
    )
    env.reset()
    first_end = min(len(row[0]) - 1 for row in episodes.images)
    for t in range(first_end - 1):
        torch.testing.assert_close(env.step(PUSHES)[0]["actor"], episodes.positions[t], rtol=0, atol=0)


def test_the_factor_of_time_scales_shaping_as_a_whole(model: Any, episodes: Episodes) -> None:
    learned = RewardTermCfg(func=MjlabRewardTerm, weight=3.0, params=params(model))
    rewards = run(make_env(rewards={"learned": learned}, scale_rewards_by_dt=True))
    np.testing.assert_allclose(rewards, 3 * STEP_S * episodes.rewards(model), atol=1e-6)


def test_a_limit_of_a_finite_horizon_is_an_end(model: Any, episodes: Episodes) -> None:
    learned = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))
    rewards = run(make_env(rewards={"learned": learned}, is_finite_horizon=True))
    np.testing.assert_allclose(rewards, episodes.rewards(model, limit_is_end=True), atol=1e-6)


def test_the_term_scores_every_few_steps_and_at_every_end(model: Any, episodes: Episodes) -> None:
    learned = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model, score_every=4))
    rewards = run(make_env(rewards={"learned": learned}))
    for row, expected in enumerate(episodes.images):
        length = len(expected[0]) - 1
        scored = [*range(4, length, 4), length]
        images = np.stack([expected[0][t] for t in [0, *scored]])
        np.testing.assert_array_equal(RecordingClient.instances[-1].scored[row][: len(scored)], images[1:])
        phi = model.score(images, "push it to the right").progress
        last = 0.0 if episodes.terminated[length - 1][row] else GAMMA**length * phi[-1]
        total = (GAMMA ** np.arange(length) * rewards[:length, row]).sum()
        assert total == pytest.approx(last - phi[0], abs=1e-6)


def test_terms_beside_one_another_score_the_same_images(model: Any, episodes: Episodes) -> None:
    """The first one to draw overwrites the images at which the others open their episodes."""
    terms = {name: RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model)) for name in ("one", "two")}
    rewards = run(make_env(rewards=terms))
    np.testing.assert_allclose(rewards, 2 * episodes.rewards(model), atol=1e-6)


def test_rows_that_the_caller_resets_start_anew(model: Any, episodes: Episodes) -> None:
    learned = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))
    env = make_env(rewards={"learned": learned}, auto_reset=False)
    env.reset()
    rewards = []
    for _ in range(STEPS):
        _, reward, terminated, truncated, _ = env.step(PUSHES)
        rewards.append(reward.clone())
        if (terminated | truncated).any():
            env.reset(env_ids=(terminated | truncated).nonzero()[:, 0])
    np.testing.assert_allclose(torch.stack(rewards), episodes.rewards(model), atol=1e-6)


class MovingCommand(CommandTerm):
    """Puts the box elsewhere when the episode starts, as the lifting task of mjlab does, after the reset of rewards."""

    @property
    def command(self) -> torch.Tensor:
        return torch.zeros(self.num_envs, 1)

    def _resample_command(self, env_ids: torch.Tensor) -> None:
        positions = torch.full((len(env_ids), 1), 0.15)
        self._env.scene["box"].write_joint_state_to_sim(positions, torch.zeros(len(env_ids), 1), env_ids=env_ids)

    def _update_command(self, env_ids: torch.Tensor | None) -> None:
        pass

    def _update_metrics(self) -> None:
        pass


@dataclass(kw_only=True)
class MovingCommandCfg(CommandTermCfg):
    def build(self, env: ManagerBasedRlEnv) -> MovingCommand:
        return MovingCommand(self, env)


def test_an_episode_opens_at_what_its_command_has_moved(model: Any) -> None:
    commands = {"move": MovingCommandCfg(resampling_time_range=(1e9, 1e9))}
    episodes = Episodes(commands=commands)
    learned = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))
    rewards = run(make_env(rewards={"learned": learned}, commands=commands))
    np.testing.assert_allclose(rewards, episodes.rewards(model), atol=1e-6)
    assert not np.array_equal(episodes.images[0][0][0], Episodes().images[0][0][0])


def make_success_env(model: Any, **options: Any) -> ManagerBasedRlEnv:
    """Success of the model ends a row, with half of the model's largest probability as the threshold."""
    solved = TerminationTermCfg(func=MjlabSuccessTerm, params=params(model, **options))
    reward = RewardTermCfg(func=success_term_reward, weight=1.0, params={"success_term": "solved"})
    return make_env(rewards={"learned": reward}, terminations={"solved": solved})


def test_success_of_the_model_ends_an_episode_and_pays(model: Any, episodes: Episodes) -> None:
    images = episodes.images[0][0]
    scores = model.score(np.stack(images), "push it to the right")
    threshold = float(scores.success[2])
    expected = next(t for t in range(1, len(images)) if scores.success[t] >= threshold)
    env = make_success_env(model, success_threshold=threshold, success_patience=1, success_reward=5.0)
    env.reset()
    for t in range(1, expected + 1):
        _, reward, terminated, truncated, _ = env.step(PUSHES)
        assert bool(terminated[0]) == (t == expected)
    assert not truncated[0] and env.termination_manager.get_term("solved")[0]
    assert reward[0].item() == pytest.approx(5 - scores.progress[expected - 1], abs=1e-6)


def test_success_that_is_out_of_reach_leaves_shaping_and_ends_as_they_are(model: Any, episodes: Episodes) -> None:
    rewards = run(make_success_env(model, success_threshold=1.0, success_patience=STEPS))
    np.testing.assert_allclose(rewards, episodes.rewards(model), atol=1e-6)


def test_success_is_the_last_termination_term_and_no_time_out(model: Any) -> None:
    solved = TerminationTermCfg(func=MjlabSuccessTerm, params=params(model))
    env = make_env(terminations={"solved": solved, "late": TerminationTermCfg(func=has_arrived)})
    env.reset()
    with pytest.raises(ValueError, match="must be the last termination term, and 'late' follows it"):
        env.step(PUSHES)
    with pytest.raises(ValueError, match="leave out time_out=True"):
        make_env(
            terminations={"solved": TerminationTermCfg(func=MjlabSuccessTerm, time_out=True, params=params(model))}
        )
    reward = RewardTermCfg(func=success_term_reward, weight=1.0, params={"success_term": "arrived"})
    env = make_env(rewards={"learned": reward})
    env.reset()
    with pytest.raises(ValueError, match="'arrived' is not the success of a model"):
        env.step(PUSHES)


def test_what_is_no_camera_is_refused(model: Any) -> None:
    for name, message in (("box", "'box' is no camera with 'rgb' in its data_types; it has none"), ("side", "above")):
        learned = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params={**params(model), "cameras": {"front": name}})
        with pytest.raises((ValueError, KeyError), match=message):
            make_env(rewards={"learned": learned})


def test_a_step_before_the_first_reset_is_refused(model: Any) -> None:
    learned = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))
    with pytest.raises(ValueError, match="stepped that was never reset"):
        make_env(rewards={"learned": learned}).step(PUSHES)


def test_the_configuration_is_written_as_mjlab_writes_it(model: Any, tmp_path: Path) -> None:
    cfg = push_env_cfg(ROWS, NUM_STEPS)
    cfg.rewards["learned"] = RewardTermCfg(func=MjlabRewardTerm, weight=1.0, params=params(model))
    dump_yaml(tmp_path / "env.yaml", asdict(cfg))
    assert "instruction: push it to the right" in (tmp_path / "env.yaml").read_text()
