"""A world model in the states of a reward model: the next observation and embedding after an action.

Source: Hung et al., NORA-1.5 (arXiv 2511.14659), whose world model predicts the states of a frozen video encoder. An
ensemble of members, each of which predicts on its own, says where the recordings do not determine the answer (Chua et
al., arXiv 1805.12114, "PETS").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from embodied_rm.build_limit import limit_build
from embodied_rm.checkpoint_io import load_into, load_tensors, save_tensors
from embodied_rm.errors import CheckpointError
from embodied_rm.rl.imagination.latent_episodes import LatentEpisode
from embodied_rm.rl.learner.ensemble_mlp import EnsembleMLP
from embodied_rm.rl.learner.policy import MIN_CHANGE_STD, ObservationNormalizer

ARCHITECTURE = "world_model"


@dataclass(frozen=True, kw_only=True)
class LatentState:
    """B states as each of E members predicts them."""

    observation: Tensor  # float32 [E, B, D]
    embedding: Tensor  # float32 [E, B, W]


class WorldModel(nn.Module):
    """Members that each predict the change of observation and embedding, and the progress of a state."""

    def __init__(
        self, obs_dim: int, action_dim: int, embedding_dim: int, hidden: Sequence[int], num_members: int
    ) -> None:
        super().__init__()
        self.num_members = num_members
        self.sizes = {
            "obs_dim": obs_dim,
            "action_dim": action_dim,
            "embedding_dim": embedding_dim,
            "hidden": list(hidden),
            "num_members": num_members,
        }
        self.normalizer = ObservationNormalizer(obs_dim, obs_dim)
        self.embedding_normalizer = ObservationNormalizer(embedding_dim)
        self.observation_change = ObservationNormalizer(obs_dim)
        self.embedding_change = ObservationNormalizer(embedding_dim)
        state_dim = 2 * obs_dim + embedding_dim
        self.dynamics = EnsembleMLP(num_members, state_dim + action_dim, hidden, obs_dim + embedding_dim)
        self.readout = EnsembleMLP(num_members, state_dim, hidden)

    def fit_normalizers(self, episodes: Sequence[LatentEpisode]) -> None:
        """Set the statistics of states and of their changes in one step."""
        columns = (
            ("observation", self.normalizer, self.observation_change),
            ("embedding", self.embedding_normalizer, self.embedding_change),
        )
        for name, normalizer, change_normalizer in columns:
            values = [getattr(episode, name) for episode in episodes]
            normalizer.fit(torch.cat(values))
            change_normalizer.fit(torch.cat([value.diff(dim=0) for value in values]), MIN_CHANGE_STD)

    def start(self, observation: Tensor, embedding: Tensor) -> LatentState:
        """Return the state of observations [B, D] and embeddings [B, W], equal for all members."""
        members = (self.num_members, -1, -1)
        return LatentState(observation=observation.expand(members), embedding=embedding.expand(members))

    def step(self, state: LatentState, action: Tensor) -> LatentState:
        """Return the next state after actions [B, A] or [E, B, A], which are clipped to [-1, 1]."""
        actions = action.clamp(-1, 1).expand(self.num_members, *action.shape[-2:])
        change = self.dynamics(torch.cat([self._features(state), actions], dim=-1))
        observation, embedding = change.split([state.observation.shape[-1], state.embedding.shape[-1]], dim=-1)
        observation_change, embedding_change = self.observation_change, self.embedding_change
        return LatentState(
            observation=state.observation + observation_change.mean + observation_change.std * observation,
            embedding=state.embedding + embedding_change.mean + embedding_change.std * embedding,
        )

    def progress(self, state: LatentState) -> Tensor:
        """Return the predicted progress [E, B]."""
        return self.readout.values(self._features(state))

    def errors(self, state: LatentState, other: LatentState) -> tuple[Tensor, Tensor]:
        """Return the differences of observations [E, B, D] and embeddings [E, B, W], in std of one step's change."""
        return (
            (state.observation - other.observation) / self.observation_change.std,
            (state.embedding - other.embedding) / self.embedding_change.std,
        )

    def _features(self, state: LatentState) -> Tensor:
        parts = [self.normalizer(state.observation), self.embedding_normalizer(state.embedding)]
        return torch.cat(parts, dim=-1)


def save_world_model(folder: Path | str, model: WorldModel, inputs: Mapping[str, str]) -> None:
    """Write a world model as a checkpoint folder; `inputs` describes what it was trained on and how."""
    manifest = {"architecture": ARCHITECTURE, "sizes": model.sizes, "inputs": dict(inputs)}
    save_tensors(folder, model.state_dict(), manifest)


def load_world_model(folder: Path | str) -> WorldModel:
    """Read a world model of `save_world_model`; raise `CheckpointError` with the file name if it is invalid."""
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    with limit_build(tensors, folder):
        try:
            model = WorldModel(**manifest["sizes"])
        except Exception as error:  # sizes of no network raise an error of any class
            raise CheckpointError(f"{folder}: the manifest describes no world model ({error})") from None
    load_into(model, tensors, folder)
    return model.requires_grad_(False)
