"""`SubgoalState`: the state of `SubgoalRewardModel` between two predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
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
MAX_SUBGOALS = 32  # subgoals per instruction: every row of a batch stores as many states as its longest instruction has


@dataclass(frozen=True, kw_only=True)
class SubgoalState:
    """The `RewardState` of `SubgoalRewardModel`: the state of each subgoal, and the subgoal counters of each row."""

    states: tuple[RewardState, ...]
    """One state per subgoal, up to the longest instruction; a row is meaningless in the states of its future subgoals.
    """
    subgoals: npt.NDArray[np.object_]  # [N]: the subgoals of each row, a tuple of sentences
    goal: npt.NDArray[np.object_]  # [N]: the goal image of each row, `Views` of that row alone; None without goals
    num_subgoals: IntArray  # [N]: number of subgoals
    num_done: IntArray  # [N]: number of completed subgoals, which is the index of the current one
    done_streak: IntArray  # [N]: consecutive predictions that the current subgoal is done
    undone_streak: IntArray  # [N]: consecutive predictions that the previous subgoal is undone

    def __len__(self) -> int:
        return len(self.num_done)

    def take(self, rows: RowIndices) -> SubgoalState:
        """Return a copy of the given rows, in that order."""
        columns = {name: column[rows] for name, column in self._columns().items()}
        return SubgoalState(states=tuple(state.take(rows) for state in self.states), **columns)

    def put(self, rows: RowIndices, other: RewardState) -> SubgoalState:
        """Return this state with `rows` replaced by the rows of `other`."""
        assert isinstance(other, SubgoalState)
        columns = {name: value.copy() for name, value in self._columns().items()}
        for name, other_value in other._columns().items():
            columns[name][rows] = other_value
        length = max(len(self.states), len(other.states))
        pairs = zip(self._pad_states(length), other._pad_states(length), strict=True)
        return SubgoalState(states=tuple(state.put(rows, other_state) for state, other_state in pairs), **columns)

    def embedding(self) -> Array:
        """float32 [N, D]: embeddings of the frames last scored, for the current subgoals; `UserError` without any."""
        if not isinstance(self.states[0], EmbeddingState):
            raise UserError("this needs a reward model whose states have embeddings, such as ProgressNet")
        return self._select_current([state.embedding() for state in self.states if isinstance(state, EmbeddingState)])

    def potential(self) -> Array:
        """float32 [N]: completed subgoals plus the potential of the current one, as a share of all subgoals."""
        current = self._select_current([state.potential() for state in self.states])
        num_done, num_subgoals = (count.astype(np.float32) for count in (self.num_done, self.num_subgoals))
        return (num_done + current) / num_subgoals

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors by name. There must be no goal images: simulated environments have none."""
        assert all(goal is None for goal in self.goal), "goal images are not serialized"
        tensors = {name: torch.from_numpy(getattr(self, name).copy()) for name in COUNT_FIELDS}
        tensors["subgoals"] = pack_json(self.subgoals.tolist())
        for index, state in enumerate(self.states):
            if isinstance(state, SerializableState):
                tensors |= add_prefix(str(index), state.state_dict())
        return tensors

    def from_state_dict(self, tensors: dict[str, Tensor]) -> SubgoalState:
        """Return the state with these tensors."""
        first = self.states[0]
        assert isinstance(first, SerializableState)
        indices = {int(name.split(".")[0]) for name in tensors if name[0].isdigit()}
        subgoals = object_array([tuple(sentences) for sentences in unpack_json(tensors["subgoals"])])
        return SubgoalState(
            states=tuple(first.from_state_dict(strip_prefix(str(index), tensors)) for index in sorted(indices)),
            subgoals=subgoals,
            goal=np.full(len(subgoals), None),
            **{name: tensors[name].numpy() for name in COUNT_FIELDS},
        )

    def _select_current(self, values: Sequence[Array]) -> Array:
        """Select the values [N, ...] of each row's current subgoal."""
        return np.stack(values)[self.num_done, np.arange(len(self))]

    def _pad_states(self, length: int) -> tuple[RewardState, ...]:
        """The states, padded to `length` subgoals."""
        return (*self.states, *self.states[:1] * (length - len(self.states)))

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "states"}


def object_array(values: Sequence[object]) -> npt.NDArray[np.object_]:
    """The values as an object array [N]."""
    return np.fromiter(values, object, len(values))
