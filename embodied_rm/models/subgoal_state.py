"""What `Plans` carries from one prediction to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import add_prefix, pack_json, strip_prefix, unpack_json
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import EmbeddingState, RewardState, RowIndices, SerializableState
from embodied_rm.types import Array, IntArray

COUNT_FIELDS = ("num_subgoals", "num_done", "done_streak", "undone_streak")


@dataclass(frozen=True, kw_only=True)
class SubgoalState:
    """The `Memory` of `Plans`: the model's own of each wish, and how far each row is in its plan."""

    states: tuple[RewardState, ...]
    """Of the first wish, the second, ..., as many as the longest plan has; rows that are not at or past a wish mean
    nothing there."""
    subgoals: npt.NDArray[np.object_]
    """[N]: the wishes of each row, a tuple of sentences."""
    goal: npt.NDArray[np.object_]
    """[N]: the goal image of each row, `Views` of that row alone; None: no goals were given."""
    num_subgoals: IntArray
    """[N]: how many there are."""
    num_done: IntArray
    """[N]: how many of them are done, the number of the one under way."""
    done_streak: IntArray
    """[N]: verdicts in a row that the wish under way is done."""
    undone_streak: IntArray
    """[N]: predictions in a row that the wish before it is undone."""

    def __len__(self) -> int:
        return len(self.num_done)

    def take(self, rows: RowIndices) -> SubgoalState:
        """A copy of the given rows, in that order."""
        columns = {name: column[rows] for name, column in self._columns().items()}
        return SubgoalState(states=tuple(state.take(rows) for state in self.states), **columns)

    def put(self, rows: RowIndices, other: RewardState) -> SubgoalState:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, SubgoalState)
        columns = {name: value.copy() for name, value in self._columns().items()}
        for name, other_value in other._columns().items():
            columns[name][rows] = other_value
        length = max(len(self.states), len(other.states))
        pairs = zip(self._pad_states(length), other._pad_states(length), strict=True)
        return SubgoalState(states=tuple(value.put(rows, other_value) for value, other_value in pairs), **columns)

    def embedding(self) -> Array:
        """float32 [N, D]: what the model makes of the states last scored, by the wishes under way.

        Raises `UserError` if it does not tell.
        """
        if not isinstance(self.states[0], EmbeddingState):
            raise UserError("this needs a reward model that tells how it embeds a state, as ProgressNet does")
        return self._select_current([state.embedding() for state in self.states if isinstance(state, EmbeddingState)])

    def potential(self) -> Array:
        """float32 [N]: the wishes done, and the potential of the one under way, as a share of all wishes."""
        current = self._select_current([state.potential() for state in self.states])
        num_done, num_subgoals = (count.astype(np.float32) for count in (self.num_done, self.num_subgoals))
        return (num_done + current) / num_subgoals

    def state_dict(self) -> dict[str, Tensor]:
        """Everything in it but goal images, which environments have none of."""
        assert all(goal is None for goal in self.goal), "goal images are not serialized"
        inner = [
            add_prefix(str(index), state.state_dict())
            for index, state in enumerate(self.states)
            if isinstance(state, SerializableState)
        ]
        columns = {
            name: torch.from_numpy(column.copy()) for name, column in self._columns().items() if name in COUNT_FIELDS
        }
        return {
            **columns,
            "subgoals": pack_json(self.subgoals.tolist()),
            **dict(chain(*(tensors.items() for tensors in inner))),
        }

    def from_state_dict(self, tensors: dict[str, Tensor]) -> SubgoalState:
        """The memory whose `state` that is."""
        first = self.states[0]
        assert isinstance(first, SerializableState)
        indices = {int(name.split(".")[0]) for name in tensors if name[0].isdigit()}
        subgoals = np.fromiter(map(tuple, unpack_json(tensors["subgoals"])), object)
        return SubgoalState(
            states=tuple(first.from_state_dict(strip_prefix(str(index), tensors)) for index in sorted(indices)),
            subgoals=subgoals,
            goal=np.full(len(subgoals), None),
            **{name: tensors[name].numpy() for name in COUNT_FIELDS},
        )

    def _select_current(self, values: Sequence[Array]) -> Array:
        """Of what is told of every wish, [N, ...] each, that of the one under way."""
        return np.stack(values)[self.num_done, np.arange(len(self))]

    def _pad_states(self, length: int) -> tuple[RewardState, ...]:
        """`of` with places for `length` wishes."""
        return (*self.states, *self.states[:1] * (length - len(self.states)))

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "states"}
