"""Labeling schemes by name: their label functions and loss terms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from embodied_rm.errors import UserError, lookup
from embodied_rm.labels import (
    change_points,
    comparisons,
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

HopTerm = Literal["all_pairs", "adjacent_pairs", "rewind_pairs", "from_first_frame", "from_goal", "negative_hop"]
OrderTerm = Literal["ranking", "partial_return", "regret", "comparison"]
FrameTerm = Literal["error_nll", "success", "subtask", "success_contrast"]
LossTerm = HopTerm | OrderTerm | FrameTerm
"""Name of a loss term; see `embodied_rm.training.objective`."""
INCREMENTAL_TERMS: frozenset[LossTerm] = frozenset({"all_pairs", "adjacent_pairs", "rewind_pairs"})
"""Loss terms that teach hops from the previous frame."""

Labeler = Callable[[Sequence[Episode]], list[Targets]]
"""Function from all training episodes to their targets. Raises `DataError` if the data lack what it needs."""
Supervision = Literal["true progress", "subtasks", "outcome", "prediction", "comparison"]
"""Most informative annotation that a scheme uses."""


@dataclass(frozen=True)
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
SUBTASK_TERMS: tuple[LossTerm, ...] = (*PROGRESS_TERMS, "subtask", "success_contrast")
CONTRAST_TERMS: tuple[LossTerm, ...] = (*PROGRESS_TERMS, "success_contrast")
OUTCOME_TERMS: tuple[LossTerm, ...] = ("error_nll", "success", "success_contrast")
ORDINAL_TERMS: tuple[LossTerm, ...] = ("from_first_frame", "negative_hop", *OUTCOME_TERMS)
LABEL_SCHEMES: dict[str, LabelScheme] = {
    "hops": LabelScheme(hops.label, SUBTASK_TERMS, "true progress"),
    "stages": LabelScheme(subtask_labels.label, SUBTASK_TERMS, "subtasks"),
    "visual_change": LabelScheme(visual_change.label, SUBTASK_TERMS, "subtasks", needs_all_frames=True),
    "change_points": LabelScheme(change_points.label, CONTRAST_TERMS, "outcome", needs_all_frames=True),
    "ordinal": LabelScheme(ordinal.label, ORDINAL_TERMS, "true progress"),
    "rewind": LabelScheme(rewind_labels.label, ("rewind_pairs", *ORDINAL_TERMS), "outcome"),
    "pairwise": LabelScheme(
        pairwise.label, ("adjacent_pairs", "ranking", "negative_hop", *OUTCOME_TERMS), "true progress"
    ),
    "preferences": LabelScheme(preferences.label, ("partial_return", "regret", *OUTCOME_TERMS), "true progress"),
    "compared": LabelScheme(comparisons.label, ("comparison", "success", "success_contrast"), "comparison"),
    "distilled": LabelScheme(distilled.label, CONTRAST_TERMS, "prediction"),
    "time": LabelScheme(time_labels.label, CONTRAST_TERMS, "outcome"),
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
        LABEL_SCHEMES[name] = LabelScheme(label, loss_terms, supervision, needs_all_frames)
        return label

    return register


def select_schemes(names: Sequence[str]) -> dict[str, LabelScheme]:
    """Return the schemes of these names; `UserError` if one is unknown or repeated, or there is none."""
    load_plugins("embodied_rm.label_schemes")
    schemes = {name: lookup(LABEL_SCHEMES, name, "labeling scheme") for name in names}
    if len(schemes) != len(names) or not names:
        raise UserError(f"label_schemes must name at least one labeling scheme, each once, got [{', '.join(names)}]")
    return schemes
