"""Instructions of several wishes, "open the drawer; then lift the red cube", judged one wish after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Reference, RewardModel
from embodied_rm.models.plan_memory import PlanMemory
from embodied_rm.shaping import verdicts_in_a_row
from embodied_rm.types import IntArray, Progress, Views

THEN = "; then "
"""What stands between two wishes of an instruction."""
UNDONE = 0.5
"""Value below which a wish that was done is undone, unless it is judged a success all the same."""
BEGUN = 0.05
"""Value from which a wish is on its way, whatever became of the one before it."""


@dataclass(frozen=True)
class Plans:
    """A `RewardModel` that reads wishes joined by "; then " through another one, which knows nothing of that.

    Each wish is judged from the frame on at which the one before it was surely done. A wish that is hardly begun is
    left again for the one before it when that is surely undone; what a wish on its way undoes, as closing the drawer
    undoes opening it, does not matter. Rows of one wish are judged as by the model itself, bit by bit.
    """

    model: RewardModel
    threshold: float = 0.5
    """Probability of success from which a judgement counts as the verdict "done"."""
    patience: int = 5
    """Consecutive verdicts after which a wish is done, or undone."""

    @property
    def takes_tensors(self) -> bool:
        """Whether `Views.frames` may be a tensor."""
        return getattr(self.model, "takes_tensors", False)

    @property
    def tells_success(self) -> bool:
        """Whether it says when a task is done."""
        return getattr(self.model, "tells_success", True)

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
            of=(inner,) * max(map(len, plan), default=1),
            plan=column(plan),
            goal=column([None if goal is None else goal.rows(np.array([row])) for row in range(len(plan))]),
            wishes=np.array([len(wishes) for wishes in plan]),
            done=nothing,
            streak=nothing,
            undone=nothing,
        )

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, PlanMemory]:
        """Judge one new frame set a row; an unscored frame neither continues nor breaks a row of verdicts.

        `value` is (wishes done + value of the wish under way) / wishes, `stage` the number of that wish, `success` the
        last wish's, 0 before it; `spread` is scaled like `value`. A wish that begins at this frame has value 0.
        """
        assert isinstance(memory, PlanMemory)
        if (memory.wishes == 1).all():
            judged, inner = self.model.advance(memory.of[0], views)
            return judged, replace(memory, of=(inner, *memory.of[1:]))
        judged, before, of = self._judged(memory, views)
        after = self._counted(replace(memory, of=of), judged, before)
        back = after.undone >= self.patience
        on = (after.streak >= self.patience) & (after.done < after.wishes - 1) & ~back
        after = self._moved(after, on.astype(np.int64) - back, views)
        last = (after.done == after.wishes - 1) & ~on
        spread = np.where(back, before.spread, judged.spread)
        whole = Progress(
            value=after.potential(),
            valid=judged.valid,
            stage=np.where(after.wishes == 1, judged.stage, after.done),
            success=np.where(last, judged.success, np.float32(0)),
            spread=np.where(on, np.float32(0), spread / after.wishes.astype(np.float32)),
            ood=np.where(back, before.ood, judged.ood),
        )
        return whole, after

    def _judged(self, memory: PlanMemory, views: Views) -> tuple[Progress, Progress, tuple[Memory, ...]]:
        """What is said of the wish under way and of the one before it (the first one itself, where there is none), and
        the memories behind that. Every wish that ever began is judged: what it was done or left with goes on from
        frame to frame."""
        of, said = list(memory.of), []
        for wish, mine in enumerate(memory.of):
            rows = np.flatnonzero(memory.done >= wish)
            if len(rows):
                judged, now = self.model.advance(mine.take(rows), views.rows(rows))
                of[wish] = mine.put(rows, now)
                said.append((rows, judged))
        return gathered(said, memory.done), gathered(said, np.maximum(memory.done - 1, 0)), tuple(of)

    def _counted(self, memory: PlanMemory, judged: Progress, before: Progress) -> PlanMemory:
        """The memory with the verdicts in a row counted anew."""
        done = judged.success >= self.threshold
        lost = (before.value < UNDONE) & (before.success < self.threshold) & (judged.value < BEGUN)
        return replace(
            memory,
            streak=verdicts_in_a_row(memory.streak, done, judged.valid),
            undone=verdicts_in_a_row(memory.undone, lost & (memory.done > 0), judged.valid),
        )

    def _moved(self, memory: PlanMemory, by: IntArray, views: Views) -> PlanMemory:
        """The memory whose rows are `by` wishes farther, int64 [N]: the next one begins at these views, the one before
        goes on from where it is."""
        done, of = memory.done + by, list(memory.of)
        for wish in range(1, len(of)):
            rows = np.flatnonzero((by > 0) & (done == wish))
            # Goals are kept row by row.
            parts = [rows] if all(goal is None for goal in memory.goal[rows]) else list(rows[:, None])
            for part in parts if len(rows) else []:
                wishes = [memory.plan[row][wish] for row in part]
                of[wish] = of[wish].put(part, self.model.begin(views.rows(part), wishes, memory.goal[part[0]]))
        counts = {name: np.where(by == 0, getattr(memory, name), 0) for name in ("streak", "undone")}
        return replace(memory, of=tuple(of), done=done, **counts)


def gathered(said: Sequence[tuple[IntArray, Progress]], wish: IntArray) -> Progress:
    """What was said of the wish [N] of each row; `said`: for every wish the rows where it was judged, and what of."""
    columns = {f.name: np.zeros(len(wish), getattr(said[0][1], f.name).dtype) for f in fields(Progress)}
    for number, (rows, judged) in enumerate(said):
        mine = wish[rows] == number
        for name, whole in columns.items():
            whole[rows[mine]] = getattr(judged, name)[mine]
    return Progress(**columns)


def wishes_of(instruction: str) -> tuple[str, ...]:
    """The wishes that an instruction names, in their order. Raises `UserError` when one of several is empty."""
    wishes = tuple(instruction.split(THEN))
    if len(wishes) > 1 and not all(wish.strip() for wish in wishes):
        raise UserError(f"{instruction!r} names an empty wish: there must be a sentence on both sides of {THEN!r}")
    return wishes


def column(values: Sequence[object]) -> npt.NDArray[np.object_]:
    """The values as an array [N], each as it is."""
    return np.fromiter(values, object, len(values))
