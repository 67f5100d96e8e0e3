"""Training of a world model on windows of recorded episodes, and its prediction error on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from embodied_rm.errors import DataError, UserError
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode, Windows, WindowSampler
from embodied_rm.rl.imagination.world_model import LatentState, WorldModel
from embodied_rm.rl.imagination.world_model_config import WorldModelConfig
from embodied_rm.rl.offline.transitions import check_unit_actions
from embodied_rm.run_folder import Reporter
from embodied_rm.threads import torch_threads

MAX_GRAD_NORM = 10.0
HUBER_DELTA_STD = 3.0  # error above which a sudden change, such as of a contact, counts linearly
WINDOWS_PER_BLOCK = 4096  # windows whose errors are computed at a time
PROGRESS_SCALE = 20.0  # weight of squared errors of progress: 0.05 squared is of the size of the other errors


@dataclass(frozen=True)
class PredictionError:
    """Errors after H actions on held-out episodes, in standard deviations of one step's change, and of progress."""

    observation: float  # mean absolute error
    observation_copied: float  # the same, if nothing is predicted to change
    embedding: float
    embedding_copied: float
    progress: float  # mean absolute error of the progress that the reward model predicts
    progress_copied: float


def split_episodes(
    episodes: Sequence[LatentEpisode], config: WorldModelConfig, seed: int
) -> tuple[list[LatentEpisode], list[LatentEpisode]]:
    """Return the episodes to train on and those to measure errors on. Those shorter than the horizon are in neither.

    Raises:
        DataError: There are fewer than two.
    """
    long_enough = [episode for episode in episodes if len(episode) > config.horizon]
    if len(long_enough) < 2:
        raise DataError(
            f"a world model needs at least 2 episodes with horizon={config.horizon} transitions, got {len(long_enough)}"
        )
    count = min(max(1, round(config.validation_share * len(long_enough))), len(long_enough) - 1)
    order = torch.randperm(len(long_enough), generator=torch.Generator().manual_seed(seed)).tolist()
    return [long_enough[i] for i in sorted(order[count:])], [long_enough[i] for i in sorted(order[:count])]


def roll_out(model: WorldModel, windows: Windows) -> list[LatentState]:
    """Return the predicted states after 0, 1, .. H recorded actions."""
    states = [model.start(windows.observation[:, 0], windows.embedding[:, 0])]
    for action in windows.action.unbind(1):
        states.append(model.step(states[-1], action))
    return states


def prediction_loss(model: WorldModel, windows: Windows) -> Tensor:
    """Return the errors of all H predicted states and of the progress of all recorded ones, summed over the members."""
    loss = torch.zeros(())
    for index, state in enumerate(roll_out(model, windows)):
        recorded = model.start(windows.observation[:, index], windows.embedding[:, index])
        progress_error = model.progress(recorded) - windows.progress[:, index]
        loss = loss + PROGRESS_SCALE * progress_error.square().mean(1).sum()
        if index:
            for error in model.errors(state, recorded):
                loss = loss + functional.huber_loss(error, torch.zeros_like(error), delta=HUBER_DELTA_STD) * len(error)
    return loss / len(windows.progress[0])


@torch_threads(1)
def train_world_model(
    episodes: Sequence[LatentEpisode], config: WorldModelConfig, seed: int, reporter: Reporter
) -> WorldModel:
    """Train a world model on recorded episodes.

    Args:
        episodes: The episodes, good and bad.
        config: Settings.
        seed: Of the initial weights and of the batches.
        reporter: Output for the user.

    Raises:
        DataError: No episode has as many transitions as the horizon.
        UserError: The loss is not finite, or an action is outside [-1, 1].
    """
    check_unit_actions(torch.cat([episode.action for episode in episodes]), "a world model")
    first = episodes[0]
    obs_dim, action_dim, embedding_dim = (c.shape[1] for c in (first.observation, first.action, first.embedding))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = WorldModel(obs_dim, action_dim, embedding_dim, config.world_model_hidden_sizes, config.num_members)
    model.fit_normalizers(episodes)
    sampler, generator = WindowSampler(episodes, config.horizon), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.world_model_learning_rate, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.world_model_steps)
    for _ in reporter.track(range(config.world_model_steps), "world model", total=config.world_model_steps):
        loss = prediction_loss(model, sampler.sample(config.world_model_batch_size, generator))
        if not loss.isfinite():
            raise UserError(
                f"the loss of the world model became {float(loss.detach())}: lower "
                f"world_model_learning_rate={config.world_model_learning_rate}"
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)
        optimizer.step()
        scheduler.step()
    return model.requires_grad_(False)


@torch_threads(1)
@torch.no_grad()
def prediction_error(model: WorldModel, episodes: Sequence[LatentEpisode], horizon: int) -> PredictionError:
    """Return the errors of the members' mean after `horizon` recorded actions, over all windows of episodes.

    Raises:
        DataError: No episode has that many transitions.
    """
    sampler = WindowSampler(episodes, horizon)
    blocks = sampler.starts.split(WINDOWS_PER_BLOCK)
    errors = torch.cat([_window_errors(model, sampler.windows(starts)) for starts in blocks])
    return PredictionError(*errors.mean(0).tolist())


def _window_errors(model: WorldModel, windows: Windows) -> Tensor:
    """Return the errors [B, 6] of each window, in the order of `PredictionError`."""
    states = roll_out(model, windows)
    recorded = model.start(windows.observation[:, -1], windows.embedding[:, -1])
    predicted, copied = (
        [error.mean(0).abs().mean(1) for error in model.errors(state, recorded)] for state in (states[-1], states[0])
    )
    end = windows.progress[:, -1]
    progress = (model.progress(states[-1]).mean(0) - end).abs()
    columns = (predicted[0], copied[0], predicted[1], copied[1], progress, (windows.progress[:, 0] - end).abs())
    return torch.stack(columns, dim=1)
