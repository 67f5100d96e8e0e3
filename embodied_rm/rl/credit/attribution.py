"""Contribution of each step to the success of its episode, learned from outcomes alone.

Source: SPA-RL (stepwise progress attribution): an MLP whose outputs are trained to sum to the outcome of an episode.
"""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from embodied_rm.checkpoint_io import add_prefix, load_into, strip_prefix
from embodied_rm.rewards.transitions import FloatArray, Transitions
from embodied_rm.rl.credit.episode_memory import EpisodeMemory
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import GaussianPolicy, ObservationNormalizer, mlp
from embodied_rm.threads import torch_threads

HIDDEN_SIZES = (64, 64)
NUM_UPDATES = 40
LEARNING_RATE = 1e-3


class ContributionNet(nn.Module):
    """Predicts the contributions [B] of steps from features [B, F]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.normalizer = ObservationNormalizer(features)
        self.mlp = mlp(features, HIDDEN_SIZES, 1, output_gain=0.01)

    def forward(self, features: Tensor) -> Tensor:
        return self.mlp(self.normalizer(features)).squeeze(-1)


class ContributionEstimator:
    """A `ContributionNet`, trained on the episodes of the last rollouts."""

    def __init__(self, critic_obs_dim: int, seed: int, max_episode_steps: int | None = None) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.contribution_net = ContributionNet(critic_obs_dim + 1)
        self._memory = EpisodeMemory(max_episode_steps)

    @torch_threads(1)
    def step_rewards(self, buffer: RolloutBuffer, transitions: Transitions, policy: GaussianPolicy) -> FloatArray:
        """Train on a rollout as well, and return the contributions [T, N] of its steps."""
        inputs = (buffer.next_critic_observation, transitions.next_potential[..., None])
        features = np.concatenate(inputs, axis=-1, dtype=np.float32)
        if self._memory.is_empty:
            self.contribution_net.normalizer.fit(torch.from_numpy(features).flatten(0, 1))
        outcome = transitions.task_reward.astype(np.float32)
        self._memory.add({"features": features, "outcome": outcome}, transitions.done, buffer.valid)
        self._fit()
        with torch.no_grad():
            return self.contribution_net(torch.from_numpy(features).flatten(0, 1)).view(outcome.shape).numpy()

    def end_episodes(self) -> None:
        """End the running episodes without an outcome: they are no training data, and the next steps start new ones."""
        self._memory.end_episodes()

    def state_dict(self) -> dict[str, Tensor]:
        """Return everything that the contributions of the next rollout depend on."""
        net_state = add_prefix("contribution_net", self.contribution_net.state_dict())
        return {**net_state, **add_prefix("rollouts", self._memory.state_dict())}

    def load_state_dict(self, tensors: dict[str, Tensor], source: object) -> None:
        """Restore the state that `state_dict` returned."""
        load_into(self.contribution_net, strip_prefix("contribution_net", tensors), str(source))
        self._memory.load_state_dict(strip_prefix("rollouts", tensors))

    def _fit(self) -> None:
        episodes = self._memory.complete_episodes()
        if not episodes.count:
            return
        features, zeros = episodes.columns["features"], torch.zeros(episodes.count)
        target = zeros.index_add(0, episodes.index, episodes.columns["outcome"])
        optimizer = torch.optim.Adam(self.contribution_net.mlp.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(NUM_UPDATES):
            optimizer.zero_grad(set_to_none=True)
            mse_loss(zeros.index_add(0, episodes.index, self.contribution_net(features)), target).backward()
            optimizer.step()
