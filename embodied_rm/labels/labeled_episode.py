"""Episodes with the targets that labeling schemes give their frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embodied_rm.data.fingerprint import hash_last_frame
from embodied_rm.labels.schemes import Labeler, select_schemes
from embodied_rm.labels.subtasks import goal_of, instructions_of, recorded_goal_of, split_text_column, task_of
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Array, BoolArray, Episode, IntArray


@dataclass(frozen=True, kw_only=True)
class LabeledEpisode:
    """What training needs of one episode."""

    views: Mapping[str, Any]
    """View name -> array uint8 [T, H, W, 3], all of one size; or what a frozen tower sees, float16 [T, C, h, w]."""
    instructions: tuple[str, ...]
    """See `sentences_of`."""
    task: str
    """See `task_of`."""
    goal: str
    """See `goal_of`."""
    recorded_goal: str | None
    """See `distinct_goal_of`."""
    implied_goals: tuple[str, ...]
    """Other goals that are fulfilled whenever this one is."""
    last_frame_hash: str
    """See `end_of`."""
    targets: Mapping[str, Targets]
    """Labeling scheme -> what it says of the T frames. The first one's are those below."""

    def __len__(self) -> int:
        return len(self.progress)

    def sample_instruction(self, rng: np.random.Generator) -> str:
        """One of the sentences. Draws nothing where there is only one."""
        return self.instructions[rng.integers(len(self.instructions)) if len(self.instructions) > 1 else 0]

    @property
    def _first_targets(self) -> Targets:
        return next(iter(self.targets.values()))

    @property
    def progress(self) -> Array:
        """float32 [T]; over it the moments of a batch are spread."""
        return self._first_targets.progress

    @property
    def subtask(self) -> IntArray:
        """int64 [T]."""
        return self._first_targets.subtask

    @property
    def success(self) -> BoolArray:
        """bool [T]; at the last frame, whether the episode is a success."""
        return self._first_targets.success


def label(
    episodes: Sequence[Episode], schemes: Sequence[str] = ("hops",), overrides: Mapping[str, Labeler] | None = None
) -> list[LabeledEpisode]:
    """The targets of every episode, by each scheme; `others`: scheme -> who labels in its place.

    Raises `UserError` for an unknown scheme, `DataError` naming an episode and what it lacks for one.
    """
    labelers = {name: scheme.label for name, scheme in select_schemes(schemes).items()}
    targets_by_scheme = {name: (overrides or {}).get(name, label_fn)(episodes) for name, label_fn in labelers.items()}
    return [
        LabeledEpisode(
            views=episode.views,
            instructions=instructions_of(episode),
            task=task_of(episode),
            goal=goal_of(episode),
            recorded_goal=recorded_goal_of(episode),
            implied_goals=split_text_column(episode, "implied_goals"),
            last_frame_hash=hash_last_frame(episode),
            targets={name: scheme_targets[i] for name, scheme_targets in targets_by_scheme.items()},
        )
        for i, episode in enumerate(episodes)
    ]
