"""A world model of a known world: a point that actions move, whose embedding is a linear map of its position."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from embodied_rm.errors import CheckpointError, DataError, UserError
from embodied_rm.rl.imagination import improve_policy as improve_policy_module
from embodied_rm.rl.imagination import train_world_model as train_world_model_module
from embodied_rm.rl.imagination.chunks import imagine_chunks, progress_reward
from embodied_rm.rl.imagination.dpo import DPOConfig
from embodied_rm.rl.imagination.improve_policy import imagined_pairs
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode, WindowSampler, make_latent_episodes
from embodied_rm.rl.imagination.train_world_model import prediction_error, split_episodes, train_world_model
from embodied_rm.rl.imagination.world_model import WorldModel, load_world_model, save_world_model
from embodied_rm.rl.imagination.world_model_config import WorldModelConfig
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.run_folder import NullReporter

HORIZON, STEP_LENGTH = 3, 0.1
CONFIG = WorldModelConfig(
    horizon=HORIZON, world_model_steps=1000, world_model_batch_size=64, world_model_hidden_sizes=(64, 64), num_members=2
)
EMBEDDING_MAP = torch.tensor([[1.0, 0.5, -1.0], [0.0, 1.0, 2.0]])


def make_episode(generator: torch.Generator, length: int = 30, *, is_demonstration: bool = True) -> LatentEpisode:
    """A random walk in the plane; its progress is its first coordinate."""
    action = 2 * torch.rand(length, 2, generator=generator) - 1
    start = torch.rand(1, 2, generator=generator) - 0.5
    observation = torch.cat([start, start + STEP_LENGTH * action[:-1].cumsum(0)])
    return LatentEpisode(
        observation=observation,
        action=action,
        embedding=observation @ EMBEDDING_MAP,
        progress=(0.5 + 0.5 * observation[:, 0]).clamp(0, 1),
        is_demonstration=is_demonstration,
    )


@pytest.fixture(scope="module")
def episodes() -> list[LatentEpisode]:
    generator = torch.Generator().manual_seed(0)
    return [make_episode(generator) for _ in range(20)]


@pytest.fixture(scope="module")
def model(episodes: list[LatentEpisode]) -> WorldModel:
    return train_world_model(episodes, CONFIG, 0, NullReporter())


def test_predictions_are_far_better_than_no_change(model: WorldModel) -> None:
    generator = torch.Generator().manual_seed(1)
    error = prediction_error(model, [make_episode(generator) for _ in range(5)], HORIZON)
    assert error.observation < 0.25 * error.observation_copied
    assert error.embedding < 0.25 * error.embedding_copied
    assert error.progress < 0.5 * error.progress_copied


def test_imagined_chunks_are_ordered_as_the_true_ones(model: WorldModel) -> None:
    """The progress of the known world after a chunk depends on the sum of its actions."""
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, log_std_init=-1.0))
    noise = torch.randn(40, 8, HORIZON, 2, generator=torch.Generator().manual_seed(2))
    observation = torch.zeros(40, 2)
    chunks = imagine_chunks(model, policy, observation, observation @ EMBEDDING_MAP, noise)
    assert chunks.observation.shape == chunks.action.shape == (40, 8, HORIZON, 2)
    assert torch.equal(chunks.observation[:, :, 0], torch.zeros(40, 8, 2))
    true_progress = chunks.action[..., 0].clamp(-1, 1).sum(-1)
    imagined = progress_reward(chunks.progress, 0.0)
    correlations = [torch.corrcoef(torch.stack(pair))[0, 1] for pair in zip(true_progress, imagined, strict=True)]
    assert torch.stack(correlations).mean() > 0.9


def test_pessimism_subtracts_what_the_members_disagree_on() -> None:
    progress = torch.tensor([[[0.2, 0.5]], [[0.6, 0.5]]])
    assert torch.allclose(progress_reward(progress, 0.0), torch.tensor([[0.4, 0.5]]))
    assert torch.allclose(progress_reward(progress, 1.0), torch.tensor([[0.2, 0.5]]))


def test_training_repeats_bit_for_bit_and_a_stored_model_predicts_the_same(
    episodes: list[LatentEpisode], tmp_path: Path
) -> None:
    config = WorldModelConfig(horizon=2, world_model_steps=3, world_model_hidden_sizes=(8,))
    first, second = (train_world_model(episodes, config, 5, NullReporter()) for _ in range(2))
    save_world_model(tmp_path / "model", first, {})
    for model in (second, load_world_model(tmp_path / "model")):
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in first.state_dict().items())
    manifest = tmp_path / "model" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"obs_dim": 2', '"obs_dim": 3'))
    with pytest.raises(CheckpointError):
        load_world_model(tmp_path / "model")


def test_windows_never_cross_the_end_of_an_episode(episodes: list[LatentEpisode]) -> None:
    sampler = WindowSampler(episodes, HORIZON)
    windows = sampler.windows(sampler.starts)
    assert len(windows.progress) == sum(len(episode) - HORIZON for episode in episodes)
    expected = windows.observation[:, :-1] + STEP_LENGTH * windows.action
    assert torch.allclose(windows.observation[:, 1:], expected, atol=1e-5)


def test_held_out_episodes_are_not_trained_on(episodes: list[LatentEpisode]) -> None:
    train, validation = split_episodes(episodes, CONFIG, 0)
    assert len(train) == 18 and len(validation) == 2
    assert not {id(episode) for episode in train} & {id(episode) for episode in validation}
    short = [make_episode(torch.Generator().manual_seed(0), HORIZON) for _ in range(50)]
    assert split_episodes([*short, *episodes], CONFIG, 0) == (train, validation), "they have no window to predict"


def test_errors_and_pairs_do_not_depend_on_the_size_of_a_block(
    model: WorldModel, episodes: list[LatentEpisode], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = GaussianPolicy(PolicySpec(obs_dim=2, action_dim=2, log_std_init=-1.0))
    config = DPOConfig(groups_per_state=2)
    whole_error = prediction_error(model, episodes[:3], HORIZON)
    whole_pairs = imagined_pairs(model, policy, episodes[:3], HORIZON, config)
    monkeypatch.setattr(train_world_model_module, "WINDOWS_PER_BLOCK", 7)
    monkeypatch.setattr(improve_policy_module, "STATES_PER_BLOCK", 11)
    assert vars(prediction_error(model, episodes[:3], HORIZON)) == pytest.approx(vars(whole_error), rel=1e-5)
    pairs = imagined_pairs(model, policy, episodes[:3], HORIZON, config)
    assert len(pairs) == len(whole_pairs) == 2 * sum(len(episode) - HORIZON for episode in episodes[:3])
    assert torch.allclose(pairs.action, whole_pairs.action, atol=1e-4)


def test_too_little_data_is_refused(episodes: list[LatentEpisode]) -> None:
    with pytest.raises(DataError, match="a world model needs at least 2 episodes with horizon=3 transitions, got 1"):
        split_episodes(episodes[:1], CONFIG, 0)
    with pytest.raises(DataError, match="none of the 20 episodes has 30 transitions"):
        WindowSampler(episodes, 30)
    wide = [replace(episode, action=2 * episode.action.sign()) for episode in episodes]
    with pytest.raises(UserError, match=re.escape("a world model needs actions in [-1, 1], and one is 2")):
        train_world_model(wide, CONFIG, 0, NullReporter())
    with pytest.raises(UserError, match="num_members must be >= 1, got 0"):
        WorldModelConfig(num_members=0)
    with pytest.raises(UserError, match=re.escape("validation_share must be in (0, 1), got 1")):
        WorldModelConfig(validation_share=1)


def test_frames_without_a_visible_view_are_refused(episodes: list[LatentEpisode]) -> None:
    import numpy as np

    from embodied_rm.types import Episode

    frames = np.zeros((4, 8, 8, 3), np.uint8)
    episode = Episode(
        name="dark",
        instruction="lift the cube",
        fps=20.0,
        views={"front": frames},
        state=np.zeros((4, 2), np.float32),
        action=np.zeros((4, 2), np.float32),
    )
    with pytest.raises(DataError, match="dark: 1 of 4 frames show no view"):
        make_latent_episodes([episode], [torch.zeros(3, 5)], [np.zeros(4, np.float32)])
