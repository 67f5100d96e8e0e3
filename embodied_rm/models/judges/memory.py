"""What a judge's judgement of an episode carries from one moment to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import packed, unpacked
from embodied_rm.models.base import Memory, Rows
from embodied_rm.models.judges.film import Film, Picture
from embodied_rm.types import Array


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One episode at the moment that is asked about."""

    instruction: str
    names: tuple[str, ...]
    """Of the views."""
    film: Film
    """What was shown before now."""
    first: Picture
    previous: Picture
    """The frame that was scored last."""
    now: Picture
    goal: Picture | None = None
    value: float = 0.0
    """The carried potential."""
    success: float = 0.0
    """The last probability of success."""

    def scored(self, value: float, success: float) -> Moment:
        """The same once `now` was scored."""
        return replace(self, value=value, success=success, previous=self.now)

    def at(self, now: Picture) -> Moment:
        """The next moment: what was now is past. Nothing was seen before the first frame that shows anything."""
        if not self.first.there.any():
            return replace(self, first=now, previous=now, now=now)
        return replace(self, film=self.film.added(self.now), now=now) if now.there.any() else self


@dataclass(frozen=True)
class JudgeMemory:
    """The `Memory` of a judge: a row is an episode at the moment last asked about."""

    rows: tuple[Moment, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Rows) -> JudgeMemory:
        """A copy of the given rows, in that order."""
        return JudgeMemory(tuple(self.rows[int(row)] for row in np.arange(len(self))[rows]))

    def put(self, rows: Rows, other: Memory) -> JudgeMemory:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, JudgeMemory)
        mine = list(self.rows)
        for row, theirs in zip(np.arange(len(self))[rows], other.rows, strict=True):
            mine[int(row)] = theirs
        return JudgeMemory(tuple(mine))

    def potential(self) -> Array:
        """float32 [N]: the carried potential."""
        return np.array([row.value for row in self.rows], np.float32)

    def state(self) -> dict[str, Tensor]:
        """Its pictures and what is said of them, row by row."""
        return {f"{i}.{name}": tensor for i, row in enumerate(self.rows) for name, tensor in _stored(row).items()}

    def restored(self, state: dict[str, Tensor]) -> JudgeMemory:
        """The memory whose `state` that is."""
        count = len({name.split(".")[0] for name in state})
        return JudgeMemory(tuple(_read({k.split(".", 1)[1]: v for k, v in _of(state, i)}) for i in range(count)))


def _of(state: dict[str, Tensor], row: int) -> Iterable[tuple[str, Tensor]]:
    return ((name, tensor) for name, tensor in state.items() if name.startswith(f"{row}."))


def _stored(row: Moment) -> dict[str, Tensor]:
    pictures = [row.first, row.previous, row.now, *([] if row.goal is None else [row.goal]), *row.film.frames]
    told = {
        "instruction": row.instruction,
        "names": row.names,
        "value": row.value,
        "success": row.success,
        "goal": row.goal is not None,
        "room": row.film.room,
        "stride": row.film.stride,
        "length": row.film.length,
    }
    return {
        "told": packed(told),
        "frames": torch.from_numpy(np.stack([picture.frames for picture in pictures])),
        "there": torch.from_numpy(np.stack([picture.there for picture in pictures])),
    }


def _read(state: dict[str, Tensor]) -> Moment:
    told = unpacked(state["told"])
    frames, there = state["frames"].numpy(), state["there"].numpy()
    pictures: Sequence[Picture] = [Picture(frame, seen) for frame, seen in zip(frames, there, strict=True)]
    first, previous, now, *rest = pictures
    goal = rest.pop(0) if told["goal"] else None
    film = Film(room=told["room"], frames=tuple(rest), stride=told["stride"], length=told["length"])
    return Moment(
        instruction=told["instruction"],
        names=tuple(told["names"]),
        film=film,
        first=first,
        previous=previous,
        now=now,
        goal=goal,
        value=told["value"],
        success=told["success"],
    )
