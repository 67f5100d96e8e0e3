"""`RemoteRewardModel`: a reward model at a reward service, as a `RewardModel`."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from queue import SimpleQueue
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embodied_rm.client import episode_handles
from embodied_rm.client.client_errors import OutOfOrderError
from embodied_rm.client.episode_handles import EpisodeHandle, SavedEpisodeState
from embodied_rm.client.reward_client import RewardClient, unexpected_responses
from embodied_rm.client.wire import RewardPrediction
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import Capabilities, Demonstration, InputSpec, RewardState, RowIndices, check_reset
from embodied_rm.models.subgoal_state import object_array
from embodied_rm.types import Array, RewardOutput, Views


class EpisodeLease:
    """Ownership of an episode at the service. The episode is ended after the last reference is gone."""

    __slots__ = ("__weakref__", "env")

    def __init__(self, env: int, ended_envs: SimpleQueue[int]) -> None:
        self.env = env
        weakref.finalize(self, ended_envs.put, env).atexit = False


class RemoteEpisode(NamedTuple):
    """An episode at the service."""

    handle: EpisodeHandle
    lease: EpisodeLease


@dataclass(frozen=True, kw_only=True)
class RemoteState:
    """The `RewardState` of `RemoteRewardModel`: handles of the episodes, with their saved states if available."""

    model: RemoteRewardModel
    episodes: npt.NDArray[np.object_]  # [N]: one `RemoteEpisode` per row
    phi: Array  # potential of the last scored frames, float32 [N]

    def __len__(self) -> int:
        return len(self.phi)

    def take(self, rows: RowIndices) -> RemoteState:
        """Return a copy of the given rows, in that order."""
        return type(self)(model=self.model, episodes=self.episodes[rows], phi=self.phi[rows])

    def put(self, rows: RowIndices, other: RewardState) -> RemoteState:
        """Return this state with `rows` replaced by the rows of `other`."""
        assert isinstance(other, RemoteState)
        episodes, phi = self.episodes.copy(), self.phi.copy()
        episodes[rows], phi[rows] = other.episodes, other.phi
        return type(self)(model=self.model, episodes=episodes, phi=phi)

    def potential(self) -> Array:
        """Return the potential of the last scored frames, float32 [N]."""
        return self.phi.copy()


class StorableRemoteState(RemoteState):
    """A serializable state, for services that return their episode states."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return the saved states of the service, and the index of each episode in them."""
        handles = [episode.handle for episode in self.episodes]
        states = [handle.saved_state for handle in handles if handle.saved_state is not None]
        snapshots = list({id(state): state for state in states}.values())
        snapshot_index = {id(snapshot): i for i, snapshot in enumerate(snapshots)}
        handle_rows = [(handle.step, snapshot_index[id(handle.saved_state)], handle.state_row) for handle in handles]
        contents = [torch.frombuffer(bytearray(snapshot.state), dtype=torch.uint8) for snapshot in snapshots]
        return {
            "handle_rows": torch.tensor(handle_rows, dtype=torch.int64),
            "rows": torch.tensor([snapshot.num_rows for snapshot in snapshots], dtype=torch.int64),
            "phi": torch.from_numpy(self.phi.copy()),
            **{f"snapshot{i}": content for i, content in enumerate(contents)},
        }

    def from_state_dict(self, tensors: dict[str, Tensor]) -> StorableRemoteState:
        """Return the state of a `state_dict`. The service receives it with the next request."""
        snapshots = [
            SavedEpisodeState(tensors[f"snapshot{i}"].numpy().tobytes(), rows)
            for i, rows in enumerate(tensors["rows"].tolist())
        ]
        episodes = [
            self.model.make_episode(SavedEpisodeState(*snapshots[snapshot]), row, step)
            for step, snapshot, row in tensors["handle_rows"].tolist()
        ]
        return StorableRemoteState(model=self.model, episodes=object_array(episodes), phi=tensors["phi"].numpy().copy())


class RemoteRewardModel:
    """A `RewardModel` that requests its predictions from a service.

    If the service returns its episode states, states here include them. They then survive a restart of the service,
    and stay valid after later steps. All methods raise `ServiceError` and its subclasses.
    """

    def __init__(self, client: RewardClient) -> None:
        self._client = client
        with unexpected_responses(client.url):
            metadata = client.get_metadata()["parameters"]
            views, image_size = metadata["views"], metadata["image_size"]
            self.input_spec = InputSpec(
                views=None if views is None else tuple(views),
                image_size=None if image_size is None else (image_size[0], image_size[1]),
            )
            self.capabilities = Capabilities(
                predicts_success=metadata["predicts_success"],
                serializable_state=metadata["supports_restore"],
                # A service of an earlier version names no threshold: its models have none.
                success_threshold=metadata.get("success_threshold"),
            )
        self._next_env = count()
        self._ended_envs: SimpleQueue[int] = SimpleQueue()

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> RemoteState:
        """Start N episodes at their first frames; `UserError` for a goal or a reference, which no service supports."""
        if goal is not None or reference is not None:
            raise UserError("a remote reward model takes neither goal images nor demonstrations")
        check_reset(len(views), instructions)
        self._end_released()
        leases = [EpisodeLease(next(self._next_env), self._ended_envs) for _ in instructions]
        env_ids = [lease.env for lease in leases]
        generations, keep_state = [0] * len(env_ids), self.capabilities.serializable_state
        prediction, handles = episode_handles.reset_episodes(
            self._client, env_ids, generations, instructions, frames_by_view(views), keep_state=keep_state
        )
        return self._make_state(handles, leases, prediction)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RemoteState]:
        """Score one new frame set per row."""
        assert isinstance(state, RemoteState)
        handles: list[EpisodeHandle] = [episode.handle for episode in state.episodes]
        leases: list[EpisodeLease] = [episode.lease for episode in state.episodes]
        try:
            prediction, new_handles = episode_handles.step_episodes(self._client, handles, frames_by_view(views))
        except OutOfOrderError:
            if not self.capabilities.serializable_state:
                raise
            # The service already made a step from one of these states, so they become new episodes.
            leases = [EpisodeLease(next(self._next_env), self._ended_envs) for _ in handles]
            handles = [handle._replace(env_id=lease.env) for handle, lease in zip(handles, leases, strict=True)]
            prediction, new_handles = episode_handles.step_episodes(self._client, handles, frames_by_view(views))
        return to_reward_output(prediction), self._make_state(new_handles, leases, prediction)

    def make_episode(self, snapshot: SavedEpisodeState, row: int, step: int) -> RemoteEpisode:
        """Return a new episode that continues from a saved state."""
        lease = EpisodeLease(next(self._next_env), self._ended_envs)
        return RemoteEpisode(EpisodeHandle(lease.env, 0, step, snapshot, row), lease)

    def _make_state(
        self, handles: Sequence[EpisodeHandle], leases: Sequence[EpisodeLease], prediction: RewardPrediction
    ) -> RemoteState:
        state_class = StorableRemoteState if self.capabilities.serializable_state else RemoteState
        episodes = [RemoteEpisode(handle, lease) for handle, lease in zip(handles, leases, strict=True)]
        return state_class(model=self, episodes=object_array(episodes), phi=np.array(prediction.progress, np.float32))

    def _end_released(self) -> None:
        """End the episodes at the service that have no reference here."""
        ended_envs = [self._ended_envs.get() for _ in range(self._ended_envs.qsize())]
        if ended_envs:
            self._client.end(ended_envs, [0] * len(ended_envs))


def frames_by_view(views: Views) -> dict[str, npt.NDArray[np.uint8]]:
    """Return view name -> uint8 [N, H, W, 3]; `UserError` if some rows lack a view, which a request cannot express."""
    if views.present is not None and not views.present.all():
        raise UserError("a remote reward model needs the same views of every environment, and one is missing")
    return {name: np.asarray(views.frames[:, i]) for i, name in enumerate(views.names)}


def to_reward_output(prediction: RewardPrediction) -> RewardOutput:
    """Convert a prediction of the client."""
    columns = prediction._asdict()
    del columns["state"]
    return RewardOutput(**{name: np.array(column) for name, column in columns.items()})
