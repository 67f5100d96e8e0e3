"""Actions of episodes that have none, from an inverse dynamics model of those that do.

Source: Zheng et al., Semi-Supervised Offline Reinforcement Learning with Action-Free Trajectories (arXiv 2210.06518).
Theirs is a distribution given several states; this one is a regression on two consecutive ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from embodied_rm.errors import DataError
from embodied_rm.rl.learner.policy import MIN_CHANGE_STD, ObservationNormalizer, mlp
from embodied_rm.rl.offline.transitions import OfflineTransitions, make_transitions
from embodied_rm.threads import torch_threads
from embodied_rm.types import Array, Episode

HIDDEN_SIZES = (256, 256)
STEPS, BATCH_SIZE, LEARNING_RATE = 3000, 256, 1e-3
VALIDATION_SHARE = 0.1


class InverseDynamics(nn.Module):
    """Actions [B, A] that lead from observations [B, D] to the next ones [B, D]."""

    def __init__(self, obs_dim: int, action_dim: int) -> None:
        super().__init__()
        self.normalizer = ObservationNormalizer(obs_dim, obs_dim)
        self.change_normalizer = ObservationNormalizer(obs_dim)
        self.mlp = mlp(3 * obs_dim, HIDDEN_SIZES, action_dim, output_gain=0.01)

    def fit_normalizers(self, observation: Tensor, next_observation: Tensor) -> None:
        """Set the statistics of observations and of their changes; those may be far below a millimeter."""
        self.normalizer.fit(observation)
        self.change_normalizer.fit(next_observation - observation, MIN_CHANGE_STD)

    def forward(self, observation: Tensor, next_observation: Tensor) -> Tensor:
        change = self.change_normalizer(next_observation - observation)
        actions: Tensor = self.mlp(torch.cat([self.normalizer(observation), change], dim=-1))
        return actions


@dataclass(frozen=True, kw_only=True)
class InferredActions:
    """Episodes that all have actions, and the error of the model that inferred some of them."""

    episodes: list[Episode]
    num_inferred: int  # episodes whose actions were inferred
    validation_rmse: float  # error on episodes with actions that the model was not trained on, in action units


@torch_threads(1)
def infer_actions(episodes: Sequence[Episode], seed: int, *, proprio_dim: int | None = None) -> InferredActions:
    """Fill in the actions of episodes that have none.

    Args:
        episodes: Episodes with states, of which at least two have actions.
        seed: Of held-out episodes, initial weights and batches.
        proprio_dim: Leading columns of the states that describe the robot; None: all. Only these are used: from few
            episodes, the positions of objects are learned by heart.

    Raises:
        DataError: Fewer than two episodes have actions, an episode has no states, or frame rates or sizes differ.
    """
    check_frame_rates(episodes)
    labeled = [episode for episode in episodes if episode.action is not None]
    if len(labeled) < 2:
        raise DataError(f"actions are inferred from at least 2 episodes that have them, and {len(labeled)} has")
    transitions = make_transitions(labeled, [np.zeros(len(episode) - 1, np.float32) for episode in labeled])
    for episode in episodes:
        check_state(episode, transitions.observation.shape[1])
    observation, next_observation = transitions.observation, transitions.next_observation
    transitions = replace(
        transitions, observation=observation[:, :proprio_dim], next_observation=next_observation[:, :proprio_dim]
    )
    train, validation = transitions.split(VALIDATION_SHARE, seed)
    model = train_model(train, seed)
    with torch.no_grad():
        error = model(validation.observation, validation.next_observation) - validation.action
    bounds = transitions.action.amin(0), transitions.action.amax(0)
    filled = [
        episode if episode.action is not None else with_actions(episode, model, bounds, proprio_dim)
        for episode in episodes
    ]
    rmse = float(error.square().mean().sqrt())
    return InferredActions(episodes=filled, num_inferred=len(episodes) - len(labeled), validation_rmse=rmse)


def check_frame_rates(episodes: Sequence[Episode]) -> None:
    """Raise `DataError` if frame rates differ."""
    rates = {episode.fps: episode.name for episode in reversed(episodes)}
    if len(rates) > 1:
        (fps, name), (other_fps, other) = list(reversed(rates.items()))[:2]
        raise DataError(
            f"{name} has {fps:g} frames/s, {other} {other_fps:g}: an action leads to another change of state"
        )


def check_state(episode: Episode, obs_dim: int) -> None:
    """Raise `DataError`, before any training, if an episode has no states, or some of another size."""
    if episode.state is None:
        raise DataError(f"{episode.name}: its actions cannot be inferred without states")
    if episode.state.shape[1] != obs_dim:
        raise DataError(f"{episode.name}: its state has size {episode.state.shape[1]}, that of the others {obs_dim}")


def train_model(train: OfflineTransitions, seed: int) -> InverseDynamics:
    """Return a model of the actions of transitions."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = InverseDynamics(train.observation.shape[1], train.action.shape[1])
    model.fit_normalizers(train.observation, train.next_observation)
    optimizer = torch.optim.Adam(model.mlp.parameters(), lr=LEARNING_RATE, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        batch = train.sample(BATCH_SIZE, generator)
        optimizer.zero_grad(set_to_none=True)
        huber_loss(model(batch.observation, batch.next_observation), batch.action, delta=0.1).backward()
        optimizer.step()
        scheduler.step()
    return model


def with_actions(
    episode: Episode, model: InverseDynamics, bounds: tuple[Tensor, Tensor], proprio_dim: int | None
) -> Episode:
    """Return the episode with the actions, within bounds [A], that lead from each state to the next.

    The last frame has no next state: its action, which is not taken, is 0.
    """
    states = torch.from_numpy(np.asarray(episode.state, np.float32)[:, :proprio_dim])
    with torch.no_grad():
        actions: Array = model(states[:-1], states[1:]).clamp(*bounds).numpy()
    return replace(episode, action=np.concatenate([actions, np.zeros((1, actions.shape[1]), np.float32)]))
