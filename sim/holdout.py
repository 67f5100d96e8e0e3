"""What worlds are not shown: colours of things, sides of tasks, phrasings; and the worlds that show nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sim.errors import SimError, lookup
from sim.layout import Layout
from sim.placing import START_POSES
from sim.props.base import PALETTE
from sim.task import Task

Part = Literal["any", "seen", "unseen"]
"""Of an attribute: everything, all but what is held out, or only what is held out."""
TRIES = 2000
"""Starts that are drawn before it is said that none is allowed."""


@dataclass(frozen=True, kw_only=True)
class Holdout:
    """What is held out, and on which side of that line worlds are: "seen" and "unseen" share nothing."""

    pairs: tuple[str, ...] = ()
    """Colours that are held out of things, e.g. ("green cube",)."""
    sides: tuple[str, ...] = ()
    """Sides that are held out of tasks, e.g. ("push_to_zone left",)."""
    templates: int = 0
    """How many of every task's templates are held out, the last ones."""
    colour: Part = "any"
    """Colours of the task's objects, of all of them: with "unseen" no object looks as in a "seen" world."""
    side: Part = "any"
    phrasing: Part = "any"

    def __post_init__(self) -> None:
        for pair in self.pairs:
            colour, _, thing = pair.partition(" ")
            lookup(PALETTE, colour, f"colour of the held-out pair {pair!r}:")
            if not thing:
                raise SimError(f"a held-out pair is a colour and a thing such as 'green cube', got {pair!r}")
        for name in ("colour", "side", "phrasing"):
            lookup({part: part for part in ("any", "seen", "unseen")}, getattr(self, name), f"value of {name}")
        if self.templates < 0:
            raise SimError(f"templates must be >= 0, got {self.templates}")

    def allows(self, task: Task, layout: Layout) -> bool:
        """Whether an episode of these worlds may start like that; with "unseen" there must be something unseen."""
        pairs, sides = pairs_of(task, layout), sides_of(task, layout)
        empty = (self.colour == "unseen" and not pairs) or (self.side == "unseen" and not sides)
        return not empty and not self.strays(pairs, sides)

    def strays(self, pairs: tuple[str, ...], sides: tuple[str, ...], phrasing: int | None = None) -> tuple[str, ...]:
        """What of these is on the wrong side of the line. `phrasing`: counted from the end, -1 is the last template."""
        wrong = (*_wrong(self.colour, self.pairs, pairs), *_wrong(self.side, self.sides, sides))
        if phrasing is None or self.phrasing == "any" or (self.phrasing == "unseen") == (-phrasing <= self.templates):
            return wrong
        return (*wrong, f"phrasing {phrasing}")

    def draw(self, task: Task, rng: np.random.Generator) -> Layout:
        """A random start among those that are allowed; where all are, the one that the task itself would draw.

        Raises `SimError` when none is.
        """
        for _ in range(TRIES):
            layout = task.layout(rng, START_POSES)
            if self.allows(task, layout):
                return layout
        drawn = ", ".join((*pairs_of(task, layout), *sides_of(task, layout)))
        raise SimError(
            f"task {task.name!r} has no start with colour={self.colour} and side={self.side}, for pairs "
            f"({', '.join(self.pairs) or 'none'}) and sides ({', '.join(self.sides) or 'none'}); "
            f"it has such as these: {drawn or 'neither colours nor sides'}"
        )

    def phrasings(self, task: Task) -> range:
        """Indices of the templates that may be drawn. Raises `SimError` when there are none."""
        count = len(task.templates)
        kept = max(count - self.templates, 0)
        found = {"any": range(count), "seen": range(kept), "unseen": range(kept, count)}[self.phrasing]
        if not found:
            raise SimError(
                f"task {task.name!r} has no {self.phrasing} phrasing: "
                f"of its {count} the last {self.templates} are held out"
            )
        return found


def _wrong(part: Part, held_out: tuple[str, ...], shown: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(entry for entry in shown if part != "any" and (entry in held_out) != (part == "unseen"))


def pairs_of(task: Task, layout: Layout) -> tuple[str, ...]:
    """Colour and name of every object of the task, e.g. ("green cube", "red cube")."""
    return tuple(f"{c} {prop.noun}" for c, prop in zip(layout.colours, task.object_props, strict=True))


def sides_of(task: Task, layout: Layout) -> tuple[str, ...]:
    """The task and the side that is meant, e.g. ("push_to_zone left",); nothing where it has none."""
    return (f"{task.name} {task.sides[layout.side]}",) if task.sides else ()
