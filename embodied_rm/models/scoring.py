"""Score recorded episodes with the online interface: `reset` and `step`, for many episodes in parallel."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from embodied_rm.errors import CheckpointError
from embodied_rm.models.batched_scoring import can_batch, step_in_batch
from embodied_rm.models.demo_alignment import stack_demonstrations
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.progress_net_state import ProgressNetState
from embodied_rm.models.reward_model import (
    Demonstration,
    RewardModel,
    RewardState,
    ScoresFirstFrame,
    StepsMany,
    VideoRewardModel,
    first_outputs,
    reference_argument,
)
from embodied_rm.models.subgoals import SubgoalRewardModel
from embodied_rm.types import SUBGOAL_SEPARATOR, Episode, IntArray, RewardOutput, Views

MAX_BATCH_EPISODES = 64  # episodes that are scored in parallel


def score_episodes(
    model: RewardModel,
    episodes: Sequence[Episode],
    goals: Sequence[Episode] | None = None,
    references: Sequence[Episode] | None = None,
) -> list[RewardOutput]:
    """Score every frame of every episode, exactly as the model does online; one prediction per episode.

    Views and sizes may differ between episodes. An instruction with several subgoals is scored by
    `SubgoalRewardModel`. The last frame of `goals[i]` is the goal image of `episodes[i]`, and `references[i]` is its
    demonstration, with the same views.
    """
    if isinstance(model, VideoRewardModel):
        return [model.score_video(episode.instruction, [episode_views(episode)]) for episode in episodes]
    group_keys = {i: (tuple(e.views), next(iter(e.views.values())).shape[1:]) for i, e in enumerate(episodes)}
    order = sorted(group_keys, key=lambda i: (str(group_keys[i]), -len(episodes[i])))
    curves: dict[int, RewardOutput] = {}
    model = with_subgoals(model, [episode.instruction for episode in episodes])
    for _, group in groupby(order, key=lambda i: group_keys[i]):
        members = list(group)
        for start in range(0, len(members), MAX_BATCH_EPISODES):
            batch = members[start : start + MAX_BATCH_EPISODES]
            goal_views = None if goals is None else views_at([goals[i] for i in batch], -1)
            reference = None if references is None else stack_demonstrations([references[i] for i in batch])
            outputs = _score_batch(model, [episodes[i] for i in batch], goal_views, reference)
            curves.update(zip(batch, outputs, strict=True))
    return [curves[i] for i in range(len(episodes))]


def _score_batch(
    model: RewardModel, episodes: Sequence[Episode], goal: Views | None, reference: Demonstration | None
) -> list[RewardOutput]:
    """Score episodes with the same views, ordered from the longest to the shortest."""
    lengths = np.array([len(episode) for episode in episodes])
    assert (np.diff(lengths) <= 0).all()
    instructions = [episode.instruction for episode in episodes]
    state = model.reset(views_at(episodes, 0), instructions, goal, **reference_argument(reference))
    curves = [_empty_output(len(episode)) for episode in episodes]
    _set_rows(curves, np.arange(len(episodes)), 0, first_outputs(model, state))
    for t in range(1, int(lengths[0])):
        active = np.flatnonzero(lengths > t)
        if len(active) < len(state):
            state = state.take(active)
        output, state = model.step(state, views_at([episodes[int(i)] for i in active], t))
        _set_rows(curves, active, t, check_finite(output))
    return curves


def _set_rows(curves: Sequence[RewardOutput], rows: IntArray, t: int, output: RewardOutput) -> None:
    """Set frame t of the curves `rows` to the rows of a prediction."""
    for name, values in vars(output).items():
        for i, value in zip(rows, values, strict=True):
            getattr(curves[i], name)[t] = value


def score_video(
    model: RewardModel,
    instruction: str,
    blocks: Iterable[Views],
    goal: Episode | None = None,
    reference: Episode | None = None,
) -> RewardOutput:
    """Score one episode that arrives in consecutive blocks, one row per frame; only one block is in memory at a time.

    `goal` is an episode whose last frame is the goal image, `reference` a demonstration.
    """
    if isinstance(model, VideoRewardModel):
        return model.score_video(instruction, blocks)
    model = with_subgoals(model, [instruction])
    goal_views = None if goal is None else views_at([goal], -1)
    demonstration = None if reference is None else stack_demonstrations([reference])
    outputs: list[RewardOutput] = []
    state: RewardState | None = None
    for views in blocks:
        rows = np.arange(len(views))
        if state is None:
            first_views, reference_kwargs = views.select(rows[:1]), reference_argument(demonstration)
            state = model.reset(first_views, [instruction], goal_views, **reference_kwargs)
            outputs.append(first_outputs(model, state))
            rows = rows[1:]
        if len(rows):
            output, state = step_many(model, state, views.select(rows))
            outputs.append(check_finite(output))
    return concat_outputs(outputs)


def with_subgoals(model: RewardModel, instructions: Iterable[str]) -> RewardModel:
    """Return the model, or one that scores one subgoal at a time if an instruction has several.

    A model with a progress of its own at the first frame aligns whole tasks, which have no subgoals.
    """
    is_whole = isinstance(model, SubgoalRewardModel | ScoresFirstFrame)
    if is_whole or not any(SUBGOAL_SEPARATOR in instruction for instruction in instructions):
        return model
    return SubgoalRewardModel(model)


def step_many(model: RewardModel, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
    """Score consecutive frames of one episode, one row per frame; `state` has one row."""
    if isinstance(model, StepsMany):
        return model.step_many(state, views)
    if isinstance(model, ProgressNet) and isinstance(state, ProgressNetState) and can_batch(state, views):
        return step_in_batch(model, state, views)
    outputs = []
    for t in range(len(views)):
        output, state = model.step(state, views.select(np.array([t])))
        outputs.append(output)
    return concat_outputs(outputs), state


def check_finite(output: RewardOutput) -> RewardOutput:
    """Return a prediction; `CheckpointError` if a valid progress is not finite, as with damaged weights."""
    if not np.isfinite(output.progress[output.valid]).all():
        raise CheckpointError("the model predicts a progress that is not finite: its weights are damaged, or too large")
    return output


def concat_outputs(outputs: Sequence[RewardOutput]) -> RewardOutput:
    """Concatenate predictions along their rows."""
    return RewardOutput(**{name: np.concatenate([getattr(o, name) for o in outputs]) for name in vars(outputs[0])})


def _empty_output(length: int) -> RewardOutput:
    """Return a prediction whose rows are set later."""
    progress, success, uncertainty = np.empty((3, length), np.float32)
    valid, subtask = np.empty(length, bool), np.empty(length, np.int64)
    return RewardOutput(progress=progress, valid=valid, subtask=subtask, success=success, uncertainty=uncertainty)


def episode_views(episode: Episode) -> Views:
    """All frames of an episode, one per row."""
    return Views(names=tuple(episode.views), frames=np.stack(list(episode.views.values()), axis=1))


def views_at(episodes: Sequence[Episode], t: int) -> Views:
    """Frame t of N episodes with the same views."""
    names = tuple(episodes[0].views)
    frames = np.stack([np.stack([episode.views[name][t] for name in names]) for episode in episodes])
    return Views(names=names, frames=frames)
