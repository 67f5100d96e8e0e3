"""Instructions with several subgoals ("open the drawer; then lift the red cube"), scored one subgoal at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from embodied_rm.client.shaping import update_success_streak
from embodied_rm.errors import UserError
from embodied_rm.models.reward_model import (
    Capabilities,
    Demonstration,
    RewardModel,
    RewardState,
    ScoresFirstFrame,
    first_outputs,
    reference_argument,
)
from embodied_rm.models.subgoal_state import MAX_SUBGOALS, SubgoalState, object_array
from embodied_rm.types import SUBGOAL_SEPARATOR, IntArray, RewardOutput, Views

UNDONE_THRESHOLD = 0.5
"""Progress below which a completed subgoal counts as undone, unless success is predicted at that frame."""
STARTED_THRESHOLD = 0.05  # progress from which a subgoal counts as started, whatever happens to the previous one


@dataclass(frozen=True)
class SubgoalRewardModel:
    """A `RewardModel` that scores each subgoal of an instruction with another model.

    A subgoal starts at the frame at which the previous one is completed. If it has hardly started while the previous
    subgoal is undone, the previous one becomes current again. Once it has started, the previous one may be undone: to
    close a drawer undoes opening it. Rows with one subgoal get the predictions of the model itself, bit for bit.
    """

    model: RewardModel
    threshold: float | None = None
    """Success probability from which a prediction counts as "done"; None: as fitted for the model, else 0.5."""
    patience: int = 5  # consecutive predictions after which a subgoal is done or undone

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
        """Start N episodes. Goal images of the end of the whole task are passed to each subgoal.

        With demonstrations, which show the whole task, instructions are not split; neither are they for a model that
        scores first frames, as it scores whole tasks. `UserError` for an empty subgoal, and for the reasons of the
        model.
        """
        if reference is None and not isinstance(self.model, ScoresFirstFrame):
            subgoals = [split_subgoals(instruction) for instruction in instructions]
            inner_state = self.model.reset(views, [sentences[0] for sentences in subgoals], goal)
        else:
            subgoals = [(instruction,) for instruction in instructions]
            inner_state = self.model.reset(views, instructions, goal, **reference_argument(reference))
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

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames, from the state that `reset` returned."""
        assert isinstance(state, SubgoalState)
        return first_outputs(self.model, state.states[0])

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, SubgoalState]:
        """Score one new frame set per row; an invalid frame neither continues nor breaks a streak.

        Progress is (completed subgoals + progress of the current one) / subgoals; uncertainty is scaled alike. The
        subtask is the index of the subgoal. Success is that of the last subgoal and 0 before it. A subgoal that starts
        at this frame has progress 0.
        """
        assert isinstance(state, SubgoalState)
        if (state.num_subgoals == 1).all():
            output, inner_state = self.model.step(state.states[0], views)
            return output, replace(state, states=(inner_state, *state.states[1:]))
        output, previous_output, states = self._step_subgoals(state, views)
        next_state = self._update_streaks(replace(state, states=states), output, previous_output)
        reverting = next_state.undone_streak >= self.patience
        is_last = next_state.num_done == next_state.num_subgoals - 1
        advancing = (next_state.done_streak >= self.patience) & ~is_last & ~reverting
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
        """Predictions of the current and of the previous subgoal (else the first one), and the new states.

        Every subgoal that has started is scored, so that its state follows all frames.
        """
        states = list(state.states)
        results = []
        for index, subgoal_state in enumerate(state.states):
            rows = np.flatnonzero(state.num_done >= index)
            if len(rows):
                output, next_state = self.model.step(subgoal_state.take(rows), views.select(rows))
                states[index] = subgoal_state.put(rows, next_state)
                results.append((rows, output))
        current, previous = (select_outputs(results, np.maximum(state.num_done - n, 0)) for n in (0, 1))
        return current, previous, tuple(states)

    def _update_streaks(self, state: SubgoalState, output: RewardOutput, previous_output: RewardOutput) -> SubgoalState:
        """The state with updated streaks."""
        threshold = self.capabilities.select_success_threshold(self.threshold)
        done = output.success >= threshold
        undone = (previous_output.progress < UNDONE_THRESHOLD) & (previous_output.success < threshold)
        undone &= output.progress < STARTED_THRESHOLD
        return replace(
            state,
            done_streak=update_success_streak(state.done_streak, done, output.valid),
            undone_streak=update_success_streak(state.undone_streak, undone & (state.num_done > 0), output.valid),
        )

    def _shift_subgoals(self, state: SubgoalState, offset: IntArray, views: Views) -> SubgoalState:
        """Move each row by `offset` subgoals, int64 [N]. The next one starts at these views; a previous one resumes."""
        num_done = state.num_done + offset
        states = list(state.states)
        for index in range(1, len(states)):
            rows = np.flatnonzero((offset > 0) & (num_done == index))
            # A goal image belongs to one row, so rows with goals are reset one by one.
            groups = [rows] if all(goal is None for goal in state.goal[rows]) else list(rows[:, None])
            for group in groups if len(rows) else []:
                sentences = [state.subgoals[row][index] for row in group]
                started = self.model.reset(views.select(group), sentences, state.goal[group[0]])
                states[index] = states[index].put(group, started)
        streaks = {name: np.where(offset == 0, getattr(state, name), 0) for name in ("done_streak", "undone_streak")}
        return replace(state, states=tuple(states), num_done=num_done, **streaks)


def select_outputs(results: Sequence[tuple[IntArray, RewardOutput]], index: IntArray) -> RewardOutput:
    """Select per row the prediction of the subgoal `index`, int64 [N], from (scored rows, prediction) per subgoal."""
    columns = {f.name: np.zeros(len(index), getattr(results[0][1], f.name).dtype) for f in fields(RewardOutput)}
    for i, (rows, output) in enumerate(results):
        mask = index[rows] == i
        for name, values in columns.items():
            values[rows[mask]] = getattr(output, name)[mask]
    return RewardOutput(**columns)


def split_subgoals(instruction: str) -> tuple[str, ...]:
    """Split an instruction into its subgoals; `UserError` if one of several is empty, or for too many."""
    subgoals = tuple(instruction.split(SUBGOAL_SEPARATOR))
    if len(subgoals) > MAX_SUBGOALS:
        raise UserError(f"{instruction[:40]!r}... has {len(subgoals)} subgoals, at most {MAX_SUBGOALS} are scored")
    if len(subgoals) > 1 and not all(subgoal.strip() for subgoal in subgoals):
        raise UserError(
            f"{instruction!r} has an empty subgoal: there must be a sentence on both sides of {SUBGOAL_SEPARATOR!r}"
        )
    return subgoals
