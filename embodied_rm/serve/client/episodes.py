"""Episodes of N environments that a reward service judges: their potentials, and what a step of them is paid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from embodied_rm.serve.client import tracks
from embodied_rm.serve.client.judgement import Frames
from embodied_rm.serve.client.tracks import Track
from embodied_rm.shaping import careful_potential, held_potential, shaped_reward, verdicts_in_a_row

if TYPE_CHECKING:
    from embodied_rm.serve.client.reward_client import RewardClient

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.floating]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Shaping:
    """How a judgement becomes a reward, as in `embodied-rm refine`."""

    gamma: float
    """The learner's discount: another one would not leave the best policy what it is."""
    scale: float = 1.0
    """Weight of the progress: the whole task, from potential 0 to 1, is worth this much."""
    score_every: int = 1
    """Steps between two scores; an episode's end is always scored."""
    caution: float = 0.0
    """Spreads of the judgement that are taken off the progress: what the model doubts is worth less."""
    success_threshold: float = 0.5
    """Probability of success from which a score counts as the verdict "done"."""
    success_patience: int = 5
    """Consecutive verdicts that are the model's "success"."""

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ValueError(f"gamma must be in (0, 1], got {self.gamma}")
        if self.score_every < 1 or self.success_patience < 1:
            raise ValueError(
                f"score_every and success_patience must be >= 1, got {self.score_every} and {self.success_patience}"
            )
        if not 0 < self.success_threshold <= 1:
            raise ValueError(f"success_threshold must be in (0, 1], got {self.success_threshold}")
        if self.scale < 0 or self.caution < 0:
            raise ValueError(f"scale and caution must be >= 0, got {self.scale} and {self.caution}")


class Step(NamedTuple):
    """What a step of N environments came to. Rows that were not `stepped` mean nothing."""

    potential: Floats
    """[N]: before it."""
    next_potential: Floats
    """[N]: after it, of the true next state."""
    achieved: BoolArray
    """[N]: whether success is now sustained, in the eyes of the model."""


class Episodes:
    """The episodes under way. `begin` the rows that were reset, `judge` after every step, and `pay`."""

    def __init__(self, client: RewardClient, count: int, shaping: Shaping) -> None:
        about = client.about()["parameters"]
        self.tells_success: bool = about["tells_success"]
        self.invalid = 0
        """Frames that could not be judged; they carry the potential before them."""
        self._client, self._shaping, self._keep = client, shaping, bool(about["storable"])
        self._tracks: list[Optional[Track]] = [None] * count
        self._begun = np.zeros(count, np.int64)
        self._phi = np.zeros(count, np.float32)
        self._since = np.zeros(count, np.int64)
        self._streak = np.zeros(count, np.int64)

    def begin(self, rows: Rows, instructions: Sequence[str], frames: Frames) -> None:
        """New episodes in these rows, at their first frames: potential 0."""
        episode = self._begun[rows].tolist()
        _, now = tracks.begin(self._client, rows.tolist(), episode, instructions, frames, keep=self._keep)
        self._begun[rows] += 1
        for row, track in zip(rows.tolist(), now):
            self._tracks[row] = track
        self._phi[rows] = 0
        self._since[rows] = self._streak[rows] = 0

    def due(self, stepped: BoolArray, ended: BoolArray) -> Rows:
        """The rows, of those that took a step, whose frames are to be judged now."""
        self._since[stepped] += 1
        return np.flatnonzero(stepped & (ended | (self._since >= self._shaping.score_every)))

    def judge(self, rows: Rows, frames: Frames) -> Step:
        """Judge these rows' frames, the true next states: what all rows come to."""
        before, scored, scored_phi = self._phi, np.zeros(len(self._phi), bool), self._phi.copy()
        achieved = np.zeros(len(before), bool)
        if len(rows):
            under_way = [self._tracks[row] for row in rows.tolist()]
            if any(track is None for track in under_way):
                raise ValueError("an environment was stepped that was never reset")
            said, now = tracks.advance(self._client, under_way, frames)
            for row, track in zip(rows.tolist(), now):
                self._tracks[row] = track
            valid = said.valid
            self.invalid += int((~valid).sum())
            scored[rows] = valid
            scored_phi[rows] = careful_potential(said.value, said.spread, self._shaping.caution)
            positive = said.success >= self._shaping.success_threshold
            self._streak[rows] = verdicts_in_a_row(self._streak[rows], positive, valid)
            achieved[rows] = valid & (self._streak[rows] >= self._shaping.success_patience)
            self._since[rows] = 0
        self._phi = np.asarray(held_potential(before, scored_phi, scored), np.float32)
        return Step(before, self._phi, achieved)

    def pay(self, step: Step, reward: npt.ArrayLike, terminated: npt.ArrayLike) -> Floats:
        """The reward of a step, shaped: `terminated` at success and at failure, not at a time limit."""
        shaping = self._shaping
        return shaped_reward(
            reward, step.potential, step.next_potential, terminated, shaping.gamma, scale=shaping.scale
        )

    def end(self) -> None:
        """Have the service forget all of them."""
        known = [track for track in self._tracks if track is not None]
        if known:
            self._client.end([track.env for track in known], [track.episode for track in known])
        self._tracks = [None] * len(self._tracks)
