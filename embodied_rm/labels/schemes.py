"""The labelling schemes by name: who labels the episodes, and which terms of the objective the labels feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from embodied_rm.errors import UserError, lookup
from embodied_rm.labels import (
    clock,
    discovered,
    hops,
    judged,
    ordinal,
    pairs,
    preferences,
    rewind,
    stages,
    visual_change,
)
from embodied_rm.labels.targets import Targets
from embodied_rm.types import Episode

Term = Literal[
    "everywhere",
    "neighbours",
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
"""A term of the objective; see `embodied_rm.objective`."""
INCREMENTAL: frozenset[Term] = frozenset({"everywhere", "neighbours", "rewound"})
"""The terms that teach hops from one moment to the next."""


Labeller = Callable[[Sequence[Episode]], list[Targets]]
"""The targets of every episode, from all that are trained on. Raises `DataError` naming what the data lack."""
Told = Literal["true progress", "steps", "outcome", "judgement"]
"""The most that a scheme is told of an episode."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """One labelling scheme."""

    label: Labeller
    teaches: tuple[Term, ...]
    told: Told
    looks: bool = False
    """Whether it looks at the pictures of all episodes before anything is learned."""

    @property
    def incremental(self) -> bool:
        """Whether it teaches hops from the previous frame; without them only the forward perspective means anything."""
        return not INCREMENTAL.isdisjoint(self.teaches)


CURVE: tuple[Term, ...] = ("everywhere", "forward", "goal", "doubt", "completion")
SCHEMES: Mapping[str, Scheme] = {
    "hops": Scheme(label=hops.label, teaches=(*CURVE, "step", "contrast"), told="true progress"),
    "stages": Scheme(label=stages.label, teaches=(*CURVE, "step", "contrast"), told="steps"),
    "visual_change": Scheme(label=visual_change.label, teaches=(*CURVE, "step", "contrast"), told="steps", looks=True),
    "discovered": Scheme(label=discovered.label, teaches=(*CURVE, "contrast"), told="outcome", looks=True),
    "ordinal": Scheme(
        label=ordinal.label, teaches=("forward", "foreign", "doubt", "completion", "contrast"), told="true progress"
    ),
    "rewind": Scheme(
        label=rewind.label, teaches=("rewound", "forward", "foreign", "doubt", "completion", "contrast"), told="outcome"
    ),
    "pairs": Scheme(
        label=pairs.label,
        teaches=("neighbours", "order", "foreign", "doubt", "completion", "contrast"),
        told="true progress",
    ),
    "preferences": Scheme(
        label=preferences.label,
        teaches=("partial_return", "regret", "doubt", "completion", "contrast"),
        told="true progress",
    ),
    "judged": Scheme(label=judged.label, teaches=(*CURVE, "contrast"), told="judgement"),
    "clock": Scheme(label=clock.label, teaches=(*CURVE, "contrast"), told="outcome"),
}


def chosen(names: Sequence[str]) -> dict[str, Scheme]:
    """The schemes of these names. Raises `UserError` for an unknown one, the same twice, and for none."""
    found = {name: lookup(SCHEMES, name, "labelling scheme") for name in names}
    if len(found) != len(names) or not names:
        raise UserError(f"labels must name one labelling scheme or more, each once, got [{', '.join(names)}]")
    return found
