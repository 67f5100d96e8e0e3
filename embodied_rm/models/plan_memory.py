"""What `Plans` carries from one judgement to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import packed, under_prefix, unpacked, with_prefix
from embodied_rm.errors import UserError
from embodied_rm.models.base import Embedding, Memory, Rows, Storable
from embodied_rm.types import Array, IntArray

COUNTS = ("wishes", "done", "streak", "undone")


@dataclass(frozen=True, kw_only=True)
class PlanMemory:
    """The `Memory` of `Plans`: the model's own of each wish, and how far each row is in its plan."""

    of: tuple[Memory, ...]
    """Of the first wish, the second, ..., as many as the longest plan has; rows that are not at or past a wish mean
    nothing there."""
    plan: npt.NDArray[np.object_]
    """[N]: the wishes of each row, a tuple of sentences."""
    goal: npt.NDArray[np.object_]
    """[N]: the goal picture of each row, `Views` of that row alone; None: no goals were given."""
    wishes: IntArray
    """[N]: how many there are."""
    done: IntArray
    """[N]: how many of them are done, the number of the one under way."""
    streak: IntArray
    """[N]: verdicts in a row that the wish under way is done."""
    undone: IntArray
    """[N]: judgements in a row that the wish before it is undone."""

    def __len__(self) -> int:
        return len(self.done)

    def take(self, rows: Rows) -> PlanMemory:
        """A copy of the given rows, in that order."""
        columns = {name: mine[rows] for name, mine in self._columns().items()}
        return PlanMemory(of=tuple(memory.take(rows) for memory in self.of), **columns)

    def put(self, rows: Rows, other: Memory) -> PlanMemory:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, PlanMemory)
        columns = {name: mine.copy() for name, mine in self._columns().items()}
        for name, theirs in other._columns().items():
            columns[name][rows] = theirs
        length = max(len(self.of), len(other.of))
        pairs = zip(self._padded(length), other._padded(length), strict=True)
        return PlanMemory(of=tuple(mine.put(rows, theirs) for mine, theirs in pairs), **columns)

    def embedding(self) -> Array:
        """float32 [N, D]: what the model makes of the states last scored, by the wishes under way.

        Raises `UserError` if it does not tell.
        """
        if not isinstance(self.of[0], Embedding):
            raise UserError("this needs a reward model that tells how it embeds a state, as ProgressNet does")
        return self._under_way([memory.embedding() for memory in self.of if isinstance(memory, Embedding)])

    def potential(self) -> Array:
        """float32 [N]: the wishes done, and the potential of the one under way, as a share of all wishes."""
        under_way = self._under_way([memory.potential() for memory in self.of])
        done, wishes = (count.astype(np.float32) for count in (self.done, self.wishes))
        return (done + under_way) / wishes

    @property
    def storable(self) -> bool:
        """Whether it can be stored: the memory of the model can, and there are no goal pictures."""
        return isinstance(self.of[0], Storable) and not any(goal is not None for goal in self.goal)

    def state(self) -> dict[str, Tensor]:
        """Everything in it but goal pictures, which environments have none of."""
        assert self.storable
        inner = [with_prefix(str(wish), m.state()) for wish, m in enumerate(self.of) if isinstance(m, Storable)]
        columns = {name: torch.from_numpy(column.copy()) for name, column in self._columns().items() if name in COUNTS}
        return {**columns, "plan": packed(self.plan.tolist()), **dict(chain(*(one.items() for one in inner)))}

    def restored(self, state: dict[str, Tensor]) -> PlanMemory:
        """The memory whose `state` that is."""
        first = self.of[0]
        assert isinstance(first, Storable)
        wishes = {int(name.split(".")[0]) for name in state if name[0].isdigit()}
        plan = np.fromiter(map(tuple, unpacked(state["plan"])), object)
        return PlanMemory(
            of=tuple(first.restored(under_prefix(str(wish), state)) for wish in sorted(wishes)),
            plan=plan,
            goal=np.full(len(plan), None),
            **{name: state[name].numpy() for name in COUNTS},
        )

    def _under_way(self, of: Sequence[Array]) -> Array:
        """Of what is told of every wish, [N, ...] each, that of the one under way."""
        return np.stack(of)[self.done, np.arange(len(self))]

    def _padded(self, length: int) -> tuple[Memory, ...]:
        """`of` with places for `length` wishes."""
        return (*self.of, *self.of[:1] * (length - len(self.of)))

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "of"}
