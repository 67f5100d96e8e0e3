"""Instructions of several wishes, "open the drawer; then lift the red cube", judged one wish after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Reference, RewardModel, Rows
from embodied_rm.types import Array, IntArray, Progress, Views

THEN = "; then "
"""What stands between two wishes of an instruction."""


@dataclass(frozen=True, kw_only=True)
class PlanMemory:
    """The `Memory` of `Plans`: the model's own of the wish under way, and how far each row is in its plan."""

    inner: Memory
    plan: npt.NDArray[np.object_]
    """[N]: the wishes of each row, a tuple of sentences."""
    goal: npt.NDArray[np.object_]
    """[N]: the goal picture of each row, `Views` of that row alone; None: no goals were given."""
    wishes: IntArray
    """[N]: how many there are."""
    done: IntArray
    """[N]: how many of them are done."""
    streak: IntArray
    """[N]: verdicts in a row that the wish under way is done."""

    def __len__(self) -> int:
        return len(self.done)

    def take(self, rows: Rows) -> PlanMemory:
        """A copy of the given rows, in that order."""
        return PlanMemory(inner=self.inner.take(rows), **{k: mine[rows] for k, mine in self._columns().items()})

    def put(self, rows: Rows, other: Memory) -> PlanMemory:
        """This memory with `rows` replaced by the rows of `other`."""
        assert isinstance(other, PlanMemory)
        columns = {name: mine.copy() for name, mine in self._columns().items()}
        for name, theirs in other._columns().items():
            columns[name][rows] = theirs
        return PlanMemory(inner=self.inner.put(rows, other.inner), **columns)

    def potential(self) -> Array:
        """float32 [N]: the wishes done, and the potential of the one under way, as a share of all wishes."""
        return self.share(self.inner.potential())

    def share(self, under_way: Array) -> Array:
        """The value of the whole in [0, 1] from that of the wish under way, float32 [N]."""
        done, wishes = (count.astype(np.float32) for count in (self.done, self.wishes))
        return (done + under_way) / wishes

    def _columns(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "inner"}


@dataclass(frozen=True)
class Plans:
    """A `RewardModel` that reads wishes joined by "; then " through another one, which knows nothing of that.

    Each wish is judged from the frame on at which the one before it was surely done. Rows of one wish are judged as by
    the model itself, bit by bit.
    """

    model: RewardModel
    threshold: float = 0.5
    """Probability of success from which a judgement counts as the verdict "done"."""
    patience: int = 5
    """Consecutive verdicts after which a wish is done, for good: nobody looks again whether it is undone later."""

    @property
    def takes_tensors(self) -> bool:
        """Whether `Views.frames` may be a tensor."""
        return getattr(self.model, "takes_tensors", False)

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> PlanMemory:
        """Open N episodes. `goal` shows the end of the whole, where every wish is done, and is shown to each of them.
        With a `reference`, which shows the way of the whole, no instruction is taken apart.

        Raises `UserError` for an empty wish, and what the model raises.
        """
        if reference is None:
            plan = [wishes_of(instruction) for instruction in instructions]
            inner = self.model.begin(views, [wishes[0] for wishes in plan], goal)
        else:
            plan = [(instruction,) for instruction in instructions]
            inner = self.model.begin(views, instructions, goal, reference)
        nothing = np.zeros(len(plan), np.int64)
        return PlanMemory(
            inner=inner,
            plan=column(plan),
            goal=column([None if goal is None else goal.rows(np.array([row])) for row in range(len(plan))]),
            wishes=np.array([len(wishes) for wishes in plan]),
            done=nothing,
            streak=nothing,
        )

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, PlanMemory]:
        """Judge one new frame set a row; an unscored frame neither continues nor breaks a row of verdicts.

        `value` is (wishes done + value of the wish under way) / wishes, `stage` the number of that wish, `success` the
        last wish's, 0 before it; `spread` is scaled like `value`. A wish that begins at this frame has value 0.
        """
        assert isinstance(memory, PlanMemory)
        judged, inner = self.model.advance(memory.inner, views)
        after = replace(memory, inner=inner)
        if (memory.wishes == 1).all():
            return judged, after
        after, begun = self._followed(after, judged, views)
        last = after.done == after.wishes - 1
        whole = Progress(
            value=after.share(np.where(begun, np.float32(0), judged.value)),
            valid=judged.valid,
            stage=np.where(after.wishes == 1, judged.stage, after.done),
            success=np.where(last & ~begun, judged.success, np.float32(0)),
            spread=np.where(begun, np.float32(0), judged.spread / after.wishes.astype(np.float32)),
        )
        return whole, after

    def _followed(self, memory: PlanMemory, judged: Progress, views: Views) -> tuple[PlanMemory, npt.NDArray[np.bool_]]:
        """The memory with the next wish begun where one is surely done, and where that is, bool [N]."""
        agreed = np.where(judged.success >= self.threshold, memory.streak + 1, 0)
        streak = np.where(judged.valid, agreed, memory.streak)
        begun = (streak >= self.patience) & (memory.done < memory.wishes - 1)
        after = replace(memory, done=memory.done + begun, streak=np.where(begun, 0, streak))
        rows, inner = np.flatnonzero(begun), after.inner
        # Goals are kept row by row.
        parts = [rows] if all(goal is None for goal in after.goal[rows]) else list(rows[:, None])
        for part in parts if len(rows) else []:
            wishes = [after.plan[row][after.done[row]] for row in part]
            inner = inner.put(part, self.model.begin(views.rows(part), wishes, after.goal[part[0]]))
        return replace(after, inner=inner), begun


def wishes_of(instruction: str) -> tuple[str, ...]:
    """The wishes that an instruction names, in their order. Raises `UserError` when one of several is empty."""
    wishes = tuple(instruction.split(THEN))
    if len(wishes) > 1 and not all(wish.strip() for wish in wishes):
        raise UserError(f"{instruction!r} names an empty wish: there must be a sentence on both sides of {THEN!r}")
    return wishes


def column(values: Sequence[object]) -> npt.NDArray[np.object_]:
    """The values as an array [N], each as it is."""
    return np.fromiter(values, object, len(values))
