"""What each step contributed to the success of its episode, learned from outcomes alone.

Source: SPA-RL (stepwise progress attribution): an MLP whose outputs, added up over an episode, are to be its outcome.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from embodied_rm.checkpoint_io import load_into, under_prefix, with_prefix
from embodied_rm.rewards.steps import Floats, Steps, episodes
from embodied_rm.rl.learner.buffer import RolloutBuffer
from embodied_rm.rl.learner.policy import Normaliser, mlp
from embodied_rm.rl.learner.threads import one_thread
from embodied_rm.types import BoolArray, IntArray

HIDDEN = (64, 64)
UPDATES, LEARNING_RATE = 40, 1e-3
KEPT = 3
"""Rollouts that are learned from: most episodes are cut by one, few by three."""


class Contributor(nn.Module):
    """The contribution [B] of steps with features [B, F]."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.normaliser = Normaliser(features)
        self.mlp = mlp(features, HIDDEN, 1, output_gain=0.01)

    def forward(self, features: Tensor) -> Tensor:
        return self.mlp(self.normaliser(features)).squeeze(-1)


class Attribution:
    """The estimator, and the last rollouts, which it learns from."""

    def __init__(self, critic_dim: int, seed: int) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.contributor = Contributor(critic_dim + 1)
        self._kept: dict[str, Tensor] = {}

    @one_thread()
    def contributions(self, buffer: RolloutBuffer, steps: Steps) -> Floats:
        """[T, N]: what the steps of a rollout contributed, after learning from it too."""
        # An episode begins where another ended, on the border of two rollouts too.
        begun = self._kept["ended"][-1].numpy() if self._kept else np.ones(buffer.num_envs, bool)
        now = _experience(buffer, steps, begun)
        if not self._kept:
            self.contributor.normaliser.fit(now["features"].flatten(0, 1))
        self._kept = {k: torch.cat([self._kept[k], v])[-KEPT * len(v) :] if self._kept else v for k, v in now.items()}
        self._learn()
        with torch.no_grad():
            return self.contributor(now["features"].flatten(0, 1)).view(now["outcome"].shape).numpy()

    def cut(self) -> None:
        """The episodes under way end here without anybody seeing how: what is left of them is nobody's whole episode,
        and what follows begins new ones."""
        if self._kept:
            self._kept["valid"][-1] &= self._kept["ended"][-1]
            self._kept["ended"][-1] = True

    def state(self) -> dict[str, Tensor]:
        """Everything that the next rollout's contributions depend on."""
        return {**with_prefix("contributor", self.contributor.state_dict()), **with_prefix("kept", self._kept)}

    def restore(self, tensors: dict[str, Tensor], source: object) -> None:
        """Take over what `state` returned."""
        load_into(self.contributor, under_prefix("contributor", tensors), str(source))
        self._kept = under_prefix("kept", tensors)

    def _learn(self) -> None:
        number, whole = seen_whole(
            self._kept["ended"].numpy(), self._kept["first"].numpy(), self._kept["valid"].numpy()
        )
        if not whole.any():
            return
        _, which = np.unique(number[whole], return_inverse=True)
        episode, rows = torch.from_numpy(which), torch.from_numpy(whole)
        features, outcome = self._kept["features"][rows], self._kept["outcome"][rows]
        nothing = torch.zeros(int(episode.max()) + 1)
        wanted = nothing.index_add(0, episode, outcome)
        optimiser = torch.optim.Adam(self.contributor.mlp.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(UPDATES):
            optimiser.zero_grad(set_to_none=True)
            mse_loss(nothing.index_add(0, episode, self.contributor(features)), wanted).backward()
            optimiser.step()


def seen_whole(ended: BoolArray, first: BoolArray, valid: BoolArray) -> tuple[IntArray, BoolArray]:
    """The number of the episode of every step [T, N], and whether that was seen from its first step to its last, with
    no fault in between."""
    number = episodes(ended)
    count = number.max() + 1
    begun, over, sick = (np.bincount(number[where], minlength=count) > 0 for where in (first, ended, ~valid))
    return number, (begun & over & ~sick)[number]


def _experience(buffer: RolloutBuffer, steps: Steps, begun: BoolArray) -> dict[str, Tensor]:
    """What is kept of a rollout, [T, N, ...]; `begun` bool [N]: where an episode begins with it."""
    first = np.concatenate([begun[None], steps.ended[:-1]])
    features = np.concatenate(
        [buffer.next_critic_observation, steps.next_potential[..., None]], axis=-1, dtype=np.float32
    )
    columns = {"features": features, "outcome": steps.task.astype(np.float32), "ended": steps.ended, "first": first,
               "valid": buffer.valid}  # fmt: skip
    return {name: torch.from_numpy(column) for name, column in columns.items()}
