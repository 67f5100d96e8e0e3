"""Contribution of each step to the success of its episode, learned from outcomes alone.

Source: SPA-RL (stepwise progress attribution): an MLP whose outputs are trained to sum to the outcome of an episode.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.rewards.transitions import FloatArray, Transitions, number_episodes
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import ObservationNormalizer, mlp
from embodied_rm.threads import torch_threads
from embodied_rm.types import BoolArray, IntArray

HIDDEN_SIZES = (64, 64)
NUM_UPDATES = 40
LEARNING_RATE = 1e-3
NUM_ROLLOUTS = 3  # number of the last rollouts that are training data: one rollout cuts most episodes, three cut few


class ContributionNet(nn.Module):
    """Predicts the contributions [B] of steps from features [B, F]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.normalizer = ObservationNormalizer(features)
        self.mlp = mlp(features, HIDDEN_SIZES, 1, output_gain=0.01)

    def forward(self, features: Tensor) -> Tensor:
        return self.mlp(self.normalizer(features)).squeeze(-1)


class ContributionEstimator:
    """A `ContributionNet` and the last rollouts, its training data."""

    def __init__(self, critic_obs_dim: int, seed: int) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.contribution_net = ContributionNet(critic_obs_dim + 1)
        self._rollouts: dict[str, Tensor] = {}

    @torch_threads(1)
    def estimate_contributions(self, buffer: RolloutBuffer, transitions: Transitions) -> FloatArray:
        """Train on a rollout as well, and return the contributions [T, N] of its steps."""
        # An episode starts after the end of another one, across rollouts too.
        starts_episode = self._rollouts["done"][-1].numpy() if self._rollouts else np.ones(buffer.num_envs, bool)
        data = _make_training_data(buffer, transitions, starts_episode)
        if not self._rollouts:
            self.contribution_net.normalizer.fit(data["features"].flatten(0, 1))
        for name, column in data.items():
            previous = self._rollouts.get(name, column[:0])
            self._rollouts[name] = torch.cat([previous, column])[-NUM_ROLLOUTS * len(column) :]
        self._fit()
        with torch.no_grad():
            return self.contribution_net(data["features"].flatten(0, 1)).view(data["outcome"].shape).numpy()

    def end_episodes(self) -> None:
        """End the running episodes without an outcome: they are no training data, and the next steps start new ones."""
        if self._rollouts:
            self._rollouts["valid"][-1] &= self._rollouts["done"][-1]
            self._rollouts["done"][-1] = True

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the contributions of the next rollout depend on."""
        net_state = add_prefix("contribution_net", self.contribution_net.state_dict())
        return {**net_state, **add_prefix("rollouts", self._rollouts)}

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state that `state_dict` returned."""
        load_into(self.contribution_net, strip_prefix("contribution_net", tensors), str(source))
        self._rollouts = strip_prefix("rollouts", tensors)

    def _fit(self) -> None:
        masks = (self._rollouts[name].numpy() for name in ("done", "first", "valid"))
        episode_ids, complete = find_complete_episodes(*masks)
        if not complete.any():
            return
        _, episode_index = np.unique(episode_ids[complete], return_inverse=True)
        episode, rows = torch.from_numpy(episode_index), torch.from_numpy(complete)
        features, outcome = self._rollouts["features"][rows], self._rollouts["outcome"][rows]
        zeros = torch.zeros(int(episode.max()) + 1)
        target = zeros.index_add(0, episode, outcome)
        optimizer = torch.optim.Adam(self.contribution_net.mlp.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(NUM_UPDATES):
            optimizer.zero_grad(set_to_none=True)
            mse_loss(zeros.index_add(0, episode, self.contribution_net(features)), target).backward()
            optimizer.step()


def find_complete_episodes(done: BoolArray, first: BoolArray, valid: BoolArray) -> tuple[IntArray, BoolArray]:
    """Return the episode number of each step [T, N], and whether that episode is complete.

    A complete episode has its first and its last step in the data, and only valid steps in between.
    """
    episode_ids = number_episodes(done)
    count = episode_ids.max() + 1
    has_start, has_end, has_invalid = (np.isin(range(count), episode_ids[mask]) for mask in (first, done, ~valid))
    return episode_ids, (has_start & has_end & ~has_invalid)[episode_ids]


def _make_training_data(
    buffer: RolloutBuffer, transitions: Transitions, starts_episode: BoolArray
) -> dict[str, Tensor]:
    """Return the training columns [T, N, ...] of a rollout; `starts_episode` bool [N]: an episode starts with it."""
    first = np.concatenate([starts_episode[None], transitions.done[:-1]])
    inputs = (buffer.next_critic_observation, transitions.next_potential[..., None])
    features = np.concatenate(inputs, axis=-1, dtype=np.float32)
    outcome = transitions.task_reward.astype(np.float32)
    columns: dict[str, np.ndarray] = {"features": features, "outcome": outcome}
    columns |= {"done": transitions.done, "first": first, "valid": buffer.valid}
    return {name: torch.from_numpy(column) for name, column in columns.items()}
