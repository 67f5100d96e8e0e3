"""Labeling schemes by name: their label functions and loss terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from embodied_rm.errors import UserError, lookup
from embodied_rm.labels import (
    change_points,
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
from embodied_rm.plugins import load_plugins
from embodied_rm.types import Episode

LossTerm = Literal[
    "all_pairs",
    "adjacent_pairs",
    "rewind_pairs",
    "from_first_frame",
    "from_goal",
    "ranking",
    "partial_return",
    "regret",
    "negative_hop",
    "error_nll",
    "success",
    "subtask",
    "success_contrast",
]
"""Name of a loss term; see `embodied_rm.training.objective`."""
INCREMENTAL_TERMS: frozenset[LossTerm] = frozenset({"all_pairs", "adjacent_pairs", "rewind_pairs"})
"""Loss terms that teach hops from the previous frame."""

Labeler = Callable[[Sequence[Episode]], list[Targets]]
"""Function from all training episodes to their targets. Raises `DataError` if the data lack what it needs."""
Supervision = Literal["true progress", "subtasks", "outcome", "prediction"]
"""Most informative annotation that a scheme uses."""


@dataclass(frozen=True, kw_only=True)
class LabelScheme:
    """One labeling scheme."""

    label: Labeler
    loss_terms: tuple[LossTerm, ...]
    supervision: Supervision
    needs_all_frames: bool = False
    """Whether labeling reads the images of all episodes before training."""

    @property
    def incremental(self) -> bool:
        """Whether the scheme teaches hops from the previous frame; without them only `fusion=forward` is meaningful."""
        return not INCREMENTAL_TERMS.isdisjoint(self.loss_terms)


PROGRESS_TERMS: tuple[LossTerm, ...] = ("all_pairs", "from_first_frame", "from_goal", "error_nll", "success")
LABEL_SCHEMES: dict[str, LabelScheme] = {
    "hops": LabelScheme(
        label=hops.label, loss_terms=(*PROGRESS_TERMS, "subtask", "success_contrast"), supervision="true progress"
    ),
    "stages": LabelScheme(
        label=subtask_labels.label,
        loss_terms=(*PROGRESS_TERMS, "subtask", "success_contrast"),
        supervision="subtasks",
    ),
    "visual_change": LabelScheme(
        label=visual_change.label,
        loss_terms=(*PROGRESS_TERMS, "subtask", "success_contrast"),
        supervision="subtasks",
        needs_all_frames=True,
    ),
    "change_points": LabelScheme(
        label=change_points.label,
        loss_terms=(*PROGRESS_TERMS, "success_contrast"),
        supervision="outcome",
        needs_all_frames=True,
    ),
    "ordinal": LabelScheme(
        label=ordinal.label,
        loss_terms=("from_first_frame", "negative_hop", "error_nll", "success", "success_contrast"),
        supervision="true progress",
    ),
    "rewind": LabelScheme(
        label=rewind_labels.label,
        loss_terms=("rewind_pairs", "from_first_frame", "negative_hop", "error_nll", "success", "success_contrast"),
        supervision="outcome",
    ),
    "pairwise": LabelScheme(
        label=pairwise.label,
        loss_terms=("adjacent_pairs", "ranking", "negative_hop", "error_nll", "success", "success_contrast"),
        supervision="true progress",
    ),
    "preferences": LabelScheme(
        label=preferences.label,
        loss_terms=("partial_return", "regret", "error_nll", "success", "success_contrast"),
        supervision="true progress",
    ),
    "distilled": LabelScheme(
        label=distilled.label, loss_terms=(*PROGRESS_TERMS, "success_contrast"), supervision="prediction"
    ),
    "time": LabelScheme(
        label=time_labels.label, loss_terms=(*PROGRESS_TERMS, "success_contrast"), supervision="outcome"
    ),
}
"""Labeling schemes by name."""


def register_label_scheme(
    name: str, *, loss_terms: tuple[LossTerm, ...], supervision: Supervision, needs_all_frames: bool = False
) -> Callable[[Labeler], Labeler]:
    """Return a decorator that registers a label function under a name, for `label_schemes=[name]`.

    Args:
        name: Name of the scheme.
        loss_terms: Losses that its targets are trained with.
        supervision: The most informative annotation that it uses.
        needs_all_frames: Whether it reads the images of all episodes before training.

    Raises:
        ValueError: A scheme of that name exists.
    """

    def register(label: Labeler) -> Labeler:
        if name in LABEL_SCHEMES:
            raise ValueError(f"the labeling scheme {name!r} is registered already")
        LABEL_SCHEMES[name] = LabelScheme(
            label=label, loss_terms=loss_terms, supervision=supervision, needs_all_frames=needs_all_frames
        )
        return label

    return register


def select_schemes(names: Sequence[str]) -> dict[str, LabelScheme]:
    """Return the schemes of these names; `UserError` if one is unknown or repeated, or there is none."""
    load_plugins("embodied_rm.label_schemes")
    schemes = {name: lookup(LABEL_SCHEMES, name, "labeling scheme") for name in names}
    if len(schemes) != len(names) or not names:
        raise UserError(f"label_schemes must name at least one labeling scheme, each once, got [{', '.join(names)}]")
    return schemes
