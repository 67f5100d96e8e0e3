"""Client-side handles of episodes, with the last state from the service so that lost episodes can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from .client_errors import EpisodeLostError, OutOfOrderError
from .wire import Frames, RewardPrediction

if TYPE_CHECKING:
    from .reward_client import RewardClient


class SavedEpisodeState(NamedTuple):
    """State of some episodes, as returned by the service."""

    state: bytes
    num_rows: int


class EpisodeHandle(NamedTuple):
    """An episode after its last scored frame."""

    env_id: int
    episode_id: int
    step: int
    saved_state: Optional[SavedEpisodeState] = None
    state_row: int = 0
    """Row of the episode in `saved_state`."""


def reset_episodes(
    client: RewardClient,
    env_ids: Sequence[int],
    episode_ids: Sequence[int],
    instructions: Sequence[str],
    frames: Frames,
    *,
    keep_state: bool,
) -> tuple[RewardPrediction, list[EpisodeHandle]]:
    """Start an episode in each environment. `keep_state`: whether to keep the returned state for a restore."""
    prediction = client.reset(env_ids, episode_ids, instructions, frames, return_state=keep_state)
    return prediction, make_handles(env_ids, episode_ids, [0] * len(env_ids), prediction)


def step_episodes(
    client: RewardClient, handles: Sequence[EpisodeHandle], frames: Frames
) -> tuple[RewardPrediction, list[EpisodeHandle]]:
    """Score one more frame per episode. Episodes that the service has lost, or has at an earlier step, are restored.

    Raises `EpisodeLostError` or `OutOfOrderError` if the state was not kept.
    """
    env_ids, episode_ids = [handle.env_id for handle in handles], [handle.episode_id for handle in handles]
    steps = [handle.step + 1 for handle in handles]
    keep_state = all(handle.saved_state is not None for handle in handles)
    try:
        prediction = client.step(env_ids, episode_ids, steps, frames, return_state=keep_state)
    except (EpisodeLostError, OutOfOrderError) as error:
        if not keep_state:
            raise
        lost_env_ids = error.env_ids if isinstance(error, EpisodeLostError) else env_ids
        restore_episodes(client, [handle for handle in handles if handle.env_id in lost_env_ids])
        prediction = client.step(env_ids, episode_ids, steps, frames, return_state=keep_state)
    return prediction, make_handles(env_ids, episode_ids, steps, prediction)


def restore_episodes(client: RewardClient, handles: Sequence[EpisodeHandle]) -> None:
    """Restore episodes from the state that is kept here."""
    handles_by_state: dict[int, list[EpisodeHandle]] = {}
    for handle in handles:
        handles_by_state.setdefault(id(handle.saved_state), []).append(handle)
    for group in handles_by_state.values():
        saved_state = group[0].saved_state
        assert saved_state is not None
        rows = ((handle.env_id, handle.episode_id, handle.step, handle.state_row) for handle in group)
        env_ids, episode_ids, steps, state_rows = zip(*rows)
        state, num_rows = saved_state
        client.restore(env_ids, episode_ids, steps, state=state, num_state_rows=num_rows, state_rows=state_rows)


def make_handles(
    env_ids: Sequence[int], episode_ids: Sequence[int], steps: Sequence[int], prediction: RewardPrediction
) -> list[EpisodeHandle]:
    """Return the handles after a prediction."""
    saved_state = None if prediction.state is None else SavedEpisodeState(prediction.state, len(env_ids))
    return [EpisodeHandle(*ids, saved_state, row) for row, ids in enumerate(zip(env_ids, episode_ids, steps))]
