"""The labeling schemes by name: who labels the episodes, and which terms of the objective the labels feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from embodied_rm.errors import UserError, lookup
from embodied_rm.labels import (
    change_point_subtasks,
    distilled,
    hops,
    ordinal,
    pairwise,
    preferences,
    rewind_labels,
    subtask_labels,
    time_labels,
    visual_change,
)
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Episode

LossTerm = Literal[
    "everywhere",
    "neighbors",
    "rewound",
    "forward",
    "goal",
    "order",
    "partial_return",
    "regret",
    "foreign",
    "doubt",
    "completion",
    "step",
    "contrast",
]
"""A term of the objective; see `embodied_rm.train.objective`."""
INCREMENTAL_TERMS: frozenset[LossTerm] = frozenset({"everywhere", "neighbors", "rewound"})
"""The terms that teach hops from one moment to the next."""


Labeler = Callable[[Sequence[Episode]], list[Targets]]
"""The targets of every episode, from all that are trained on. Raises `DataError` naming what the data lack."""
Supervision = Literal["true progress", "steps", "outcome", "prediction"]
"""The most that a scheme is told of an episode."""


@dataclass(frozen=True, kw_only=True)
class LabelScheme:
    """One labeling scheme."""

    label: Labeler
    loss_terms: tuple[LossTerm, ...]
    supervision: Supervision
    needs_all_frames: bool = False
    """Whether it looks at the images of all episodes before anything is learned."""

    @property
    def incremental(self) -> bool:
        """Whether it teaches hops from the previous frame; without them only the forward perspective means anything."""
        return not INCREMENTAL_TERMS.isdisjoint(self.loss_terms)


PROGRESS_TERMS: tuple[LossTerm, ...] = ("everywhere", "forward", "goal", "doubt", "completion")
LABEL_SCHEMES: Mapping[str, LabelScheme] = {
    "hops": LabelScheme(
        label=hops.label, loss_terms=(*PROGRESS_TERMS, "step", "contrast"), supervision="true progress"
    ),
    "stages": LabelScheme(
        label=subtask_labels.label, loss_terms=(*PROGRESS_TERMS, "step", "contrast"), supervision="steps"
    ),
    "visual_change": LabelScheme(
        label=visual_change.label,
        loss_terms=(*PROGRESS_TERMS, "step", "contrast"),
        supervision="steps",
        needs_all_frames=True,
    ),
    "discovered": LabelScheme(
        label=change_point_subtasks.label,
        loss_terms=(*PROGRESS_TERMS, "contrast"),
        supervision="outcome",
        needs_all_frames=True,
    ),
    "ordinal": LabelScheme(
        label=ordinal.label,
        loss_terms=("forward", "foreign", "doubt", "completion", "contrast"),
        supervision="true progress",
    ),
    "rewind": LabelScheme(
        label=rewind_labels.label,
        loss_terms=("rewound", "forward", "foreign", "doubt", "completion", "contrast"),
        supervision="outcome",
    ),
    "pairs": LabelScheme(
        label=pairwise.label,
        loss_terms=("neighbors", "order", "foreign", "doubt", "completion", "contrast"),
        supervision="true progress",
    ),
    "preferences": LabelScheme(
        label=preferences.label,
        loss_terms=("partial_return", "regret", "doubt", "completion", "contrast"),
        supervision="true progress",
    ),
    "judged": LabelScheme(label=distilled.label, loss_terms=(*PROGRESS_TERMS, "contrast"), supervision="prediction"),
    "clock": LabelScheme(label=time_labels.label, loss_terms=(*PROGRESS_TERMS, "contrast"), supervision="outcome"),
}


def select_schemes(names: Sequence[str]) -> dict[str, LabelScheme]:
    """The schemes of these names. Raises `UserError` for an unknown one, the same twice, and for none."""
    schemes = {name: lookup(LABEL_SCHEMES, name, "labeling scheme") for name in names}
    if len(schemes) != len(names) or not names:
        raise UserError(f"labels must name one labeling scheme or more, each once, got [{', '.join(names)}]")
    return schemes
