"""Episodes with the targets of labeling schemes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_rm.data.fingerprint import hash_last_frame
from embodied_rm.labels import hops
from embodied_rm.labels.schemes import Labeler, select_schemes
from embodied_rm.labels.subtasks import goal_of, instructions_of, recorded_goal_of, split_text_column, task_of
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Array, BoolArray, Episode, IntArray


@dataclass(frozen=True, kw_only=True)
class LabeledEpisode:
    """The training data of one episode."""

    name: str
    views: Mapping[str, Any]
    """View name -> uint8 [T, H, W, 3], all of one size; or features of a frozen tower, float16 [T, C, h, w]."""
    instructions: tuple[str, ...]  # see `instructions_of`
    task: str  # see `task_of`
    goal: str  # see `goal_of`
    recorded_goal: str | None  # see `recorded_goal_of`
    implied_goals: tuple[str, ...]  # other goals that this goal implies (meta column `fulfils`)
    last_frame_hash: str  # see `hash_last_frame`
    targets: Mapping[str, Targets]
    """Labeling scheme -> targets [T]. The properties below are those of the first scheme."""

    def __len__(self) -> int:
        return len(self.progress)

    def sample_instruction(self, rng: np.random.Generator) -> str:
        """Draw one of the instructions; a single instruction uses no random numbers."""
        return self.instructions[rng.integers(len(self.instructions)) if len(self.instructions) > 1 else 0]

    @property
    def _first_targets(self) -> Targets:
        return next(iter(self.targets.values()))

    @property
    def progress(self) -> Array:
        """Progress, float32 [T]; frame sampling is stratified over it."""
        return self._first_targets.progress

    @property
    def subtask(self) -> IntArray:
        """Subtask index, int64 [T]."""
        return self._first_targets.subtask

    @property
    def success(self) -> BoolArray:
        """Whether the task is done, bool [T]; the last frame gives the outcome of the episode."""
        return self._first_targets.success

    @property
    def is_progress_known(self) -> bool:
        """Whether the progress of every frame is known."""
        return bool(self._first_targets.progress_known.all())

    @property
    def outcome(self) -> bool | None:
        """Whether the task is done at the last frame; None if it is unknown."""
        return bool(self.success[-1]) if self._first_targets.success_known[-1] else None

    @property
    def is_done_known(self) -> BoolArray:
        """Where `success` is known, bool [T]: everywhere if progress is, else at the last frame at most."""
        return self._first_targets.progress_known | self._first_targets.success_known


def label_ground_truth(episodes: Sequence[Episode]) -> list[LabeledEpisode]:
    """Return all that is annotated per episode, to evaluate on: progress may be unknown, and the outcome too."""
    return label(episodes, overrides={"hops": hops.ground_truth})


def label(
    episodes: Sequence[Episode], schemes: Sequence[str] = ("hops",), overrides: Mapping[str, Labeler] | None = None
) -> list[LabeledEpisode]:
    """Label episodes with each scheme, or with its override (scheme -> labeler).

    `UserError` if a scheme is unknown, `DataError` if an episode lacks data that a scheme needs.
    """
    labelers = {name: scheme.label for name, scheme in select_schemes(schemes).items()}
    targets_by_scheme = {name: (overrides or {}).get(name, label_fn)(episodes) for name, label_fn in labelers.items()}
    return [
        LabeledEpisode(
            name=episode.name,
            views=episode.views,
            instructions=instructions_of(episode),
            task=task_of(episode),
            goal=goal_of(episode),
            recorded_goal=recorded_goal_of(episode),
            implied_goals=split_text_column(episode, "fulfils"),
            last_frame_hash=hash_last_frame(episode),
            targets={name: scheme_targets[i] for name, scheme_targets in targets_by_scheme.items()},
        )
        for i, episode in enumerate(episodes)
    ]
