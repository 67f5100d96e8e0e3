"""Instructions of several wishes, "open the drawer; then lift the red cube", judged one wish after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import Capabilities, Demonstration, RewardModel, RewardState
from embodied_rm.models.subgoal_state import SubgoalState
from embodied_rm.rewards.shaping import update_success_streak
from embodied_rm.types import IntArray, RewardOutput, Views

SUBGOAL_SEPARATOR = "; then "
"""What stands between two wishes of an instruction."""
UNDONE_THRESHOLD = 0.5
"""Value below which a wish that was done is undone, unless it is judged a success all the same."""
STARTED_THRESHOLD = 0.05
"""Value from which a wish is on its way, whatever became of the one before it."""


@dataclass(frozen=True)
class SubgoalRewardModel:
    """A `RewardModel` that reads wishes joined by "; then " through another one, which knows nothing of that.

    Each wish is judged from the frame on at which the one before it was surely done. A wish that is hardly begun is
    left again for the one before it when that is surely undone; what a wish on its way undoes, as closing the drawer
    undoes opening it, does not matter. Rows of one wish are judged as by the model itself, bit by bit.
    """

    model: RewardModel
    threshold: float = 0.5
    """Probability of success from which a prediction counts as the verdict "done"."""
    patience: int = 5
    """Consecutive verdicts after which a wish is done, or undone."""

    @property
    def capabilities(self) -> Capabilities:
        """Those of the wrapped model."""
        return self.model.capabilities

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> SubgoalState:
        """Open N episodes. `goal` shows the end of the whole, where every wish is done, and is shown to each of them.
        With a `reference`, which shows the way of the whole, no instruction is taken apart.

        Raises `UserError` for an empty wish, and what the model raises.
        """
        if reference is None:
            subgoals = [split_subgoals(instruction) for instruction in instructions]
            inner_state = self.model.reset(views, [sentences[0] for sentences in subgoals], goal)
        else:
            subgoals = [(instruction,) for instruction in instructions]
            inner_state = self.model.reset(views, instructions, goal, reference)
        zeros = np.zeros(len(subgoals), np.int64)
        return SubgoalState(
            states=(inner_state,) * max(map(len, subgoals), default=1),
            subgoals=object_array(subgoals),
            goal=object_array([None if goal is None else goal.select(np.array([row])) for row in range(len(subgoals))]),
            num_subgoals=np.array([len(sentences) for sentences in subgoals]),
            num_done=zeros,
            done_streak=zeros,
            undone_streak=zeros,
        )

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, SubgoalState]:
        """Judge one new frame set a row; an unscored frame neither continues nor breaks a row of verdicts.

        `value` is (wishes done + value of the wish under way) / wishes, `stage` the number of that wish, `success` the
        last wish's, 0 before it; `spread` is scaled like `value`. A wish that begins at this frame has value 0.
        """
        assert isinstance(state, SubgoalState)
        if (state.num_subgoals == 1).all():
            output, inner_state = self.model.step(state.states[0], views)
            return output, replace(state, states=(inner_state, *state.states[1:]))
        output, previous_output, states = self._step_subgoals(state, views)
        next_state = self._update_streaks(replace(state, states=states), output, previous_output)
        reverting = next_state.undone_streak >= self.patience
        advancing = (
            (next_state.done_streak >= self.patience) & (next_state.num_done < next_state.num_subgoals - 1) & ~reverting
        )
        next_state = self._shift_subgoals(next_state, advancing.astype(np.int64) - reverting, views)
        at_last = (next_state.num_done == next_state.num_subgoals - 1) & ~advancing
        uncertainty = np.where(reverting, previous_output.uncertainty, output.uncertainty)
        combined = RewardOutput(
            progress=next_state.potential(),
            valid=output.valid,
            subtask=np.where(next_state.num_subgoals == 1, output.subtask, next_state.num_done),
            success=np.where(at_last, output.success, np.float32(0)),
            uncertainty=np.where(advancing, np.float32(0), uncertainty / next_state.num_subgoals.astype(np.float32)),
            ood=np.where(reverting, previous_output.ood, output.ood),
        )
        return combined, next_state

    def _step_subgoals(
        self, state: SubgoalState, views: Views
    ) -> tuple[RewardOutput, RewardOutput, tuple[RewardState, ...]]:
        """What is said of the wish under way and of the one before it (the first one itself, where there is none), and
        the memories behind that. Every wish that ever began is judged: what it was done or left with goes on from
        frame to frame."""
        states, results = list(state.states), []
        for index, subgoal_state in enumerate(state.states):
            rows = np.flatnonzero(state.num_done >= index)
            if len(rows):
                output, next_state = self.model.step(subgoal_state.take(rows), views.select(rows))
                states[index] = subgoal_state.put(rows, next_state)
                results.append((rows, output))
        return (
            select_outputs(results, state.num_done),
            select_outputs(results, np.maximum(state.num_done - 1, 0)),
            tuple(states),
        )

    def _update_streaks(self, state: SubgoalState, output: RewardOutput, previous_output: RewardOutput) -> SubgoalState:
        """The memory with the verdicts in a row counted anew."""
        done = output.success >= self.threshold
        undone = (
            (previous_output.progress < UNDONE_THRESHOLD)
            & (previous_output.success < self.threshold)
            & (output.progress < STARTED_THRESHOLD)
        )
        return replace(
            state,
            done_streak=update_success_streak(state.done_streak, done, output.valid),
            undone_streak=update_success_streak(state.undone_streak, undone & (state.num_done > 0), output.valid),
        )

    def _shift_subgoals(self, state: SubgoalState, offset: IntArray, views: Views) -> SubgoalState:
        """The memory whose rows are `by` wishes farther, int64 [N]: the next one begins at these views, the one before
        goes on from where it is."""
        num_done, states = state.num_done + offset, list(state.states)
        for index in range(1, len(states)):
            rows = np.flatnonzero((offset > 0) & (num_done == index))
            # Goals are kept row by row.
            groups = [rows] if all(goal is None for goal in state.goal[rows]) else list(rows[:, None])
            for group in groups if len(rows) else []:
                sentences = [state.subgoals[row][index] for row in group]
                states[index] = states[index].put(
                    group, self.model.reset(views.select(group), sentences, state.goal[group[0]])
                )
        streaks = {name: np.where(offset == 0, getattr(state, name), 0) for name in ("done_streak", "undone_streak")}
        return replace(state, states=tuple(states), num_done=num_done, **streaks)


def select_outputs(results: Sequence[tuple[IntArray, RewardOutput]], index: IntArray) -> RewardOutput:
    """What was said of the wish [N] of each row; `said`: for every wish the rows where it was judged, and what of."""
    columns = {f.name: np.zeros(len(index), getattr(results[0][1], f.name).dtype) for f in fields(RewardOutput)}
    for i, (rows, output) in enumerate(results):
        mask = index[rows] == i
        for name, values in columns.items():
            values[rows[mask]] = getattr(output, name)[mask]
    return RewardOutput(**columns)


def split_subgoals(instruction: str) -> tuple[str, ...]:
    """The wishes that an instruction names, in their order. Raises `UserError` when one of several is empty."""
    subgoals = tuple(instruction.split(SUBGOAL_SEPARATOR))
    if len(subgoals) > 1 and not all(subgoal.strip() for subgoal in subgoals):
        raise UserError(
            f"{instruction!r} names an empty wish: there must be a sentence on both sides of {SUBGOAL_SEPARATOR!r}"
        )
    return subgoals


def object_array(values: Sequence[object]) -> npt.NDArray[np.object_]:
    """The values as an array [N], each as it is."""
    return np.fromiter(values, object, len(values))
