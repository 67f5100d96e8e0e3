"""Episodes of a client: where each is, and what the service remembered then, so that it can be told if it forgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from embodied_rm.serve.client.errors import LostError, OutOfStepError
from embodied_rm.serve.client.judgement import Frames, Judgement

if TYPE_CHECKING:
    from embodied_rm.serve.client.reward_client import RewardClient


class Kept(NamedTuple):
    """What the service remembered of some episodes."""

    state: bytes
    rows: int


class Track(NamedTuple):
    """An episode, after the last frame that was judged of it."""

    env: int
    episode: int
    step: int
    kept: Optional[Kept] = None
    row: int = 0
    """Which of the episodes in `kept` it is."""


def begin(
    client: RewardClient,
    env: Sequence[int],
    episode: Sequence[int],
    instructions: Sequence[str],
    frames: Frames,
    *,
    keep: bool,
) -> tuple[Judgement, list[Track]]:
    """Open an episode in each environment; `keep`: whether what is remembered is kept here too."""
    judged = client.begin(env, episode, instructions, frames, state=keep)
    return judged, tracks_of(env, episode, [0] * len(env), judged)


def advance(client: RewardClient, tracks: Sequence[Track], frames: Frames) -> tuple[Judgement, list[Track]]:
    """Judge one more frame of each; a service that has forgotten them is told what it remembered, and so is one of
    several that stayed behind while others answered.

    Raises `LostError` or `OutOfStepError` where that was not kept.
    """
    env, episode = [track.env for track in tracks], [track.episode for track in tracks]
    step = [track.step + 1 for track in tracks]
    keep = all(track.kept is not None for track in tracks)
    try:
        judged = client.advance(env, episode, step, frames, state=keep)
    except (LostError, OutOfStepError) as fault:
        if not keep:
            raise
        behind = [track for track in tracks if track.env in fault.env] if isinstance(fault, LostError) else tracks
        restore(client, behind)
        judged = client.advance(env, episode, step, frames, state=keep)
    return judged, tracks_of(env, episode, step, judged)


def restore(client: RewardClient, tracks: Sequence[Track]) -> None:
    """Send back what the service remembered of these episodes."""
    together: dict[int, list[Track]] = {}
    for track in tracks:
        together.setdefault(id(track.kept), []).append(track)
    for some in together.values():
        kept = some[0].kept
        assert kept is not None
        env, episode, step, row = zip(*((track.env, track.episode, track.step, track.row) for track in some))
        client.restore(env, episode, step, state=kept.state, rows=kept.rows, row=row)


def tracks_of(env: Sequence[int], episode: Sequence[int], step: Sequence[int], judged: Judgement) -> list[Track]:
    """Where these episodes are now."""
    kept = None if judged.state is None else Kept(judged.state, len(env))
    return [Track(*place, kept, row) for row, place in enumerate(zip(env, episode, step))]
