"""Held-out colors, sides and phrasings, and the splits of episodes with and without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from embodied_sim.palette import PALETTE
from embodied_sim.sim_errors import SimError, lookup

if TYPE_CHECKING:
    from embodied_sim.layout import Layout
    from embodied_sim.task import Task

HoldoutSplit = Literal["any", "seen", "unseen"]
"""Values of an attribute: all, all except the held-out ones, or only the held-out ones."""
MAX_DRAWS = 2000  # draws after which a split counts as empty


@dataclass(frozen=True, kw_only=True)
class Holdout:
    """Held-out attributes and the split of each; "seen" and "unseen" are disjoint."""

    color_object_pairs: tuple[str, ...] = ()
    """Held-out combinations of color and object, e.g. ("green cube",)."""
    sides: tuple[str, ...] = ()
    """Held-out combinations of task and side, e.g. ("push_to_zone left",)."""
    num_templates: int = 0  # number of held-out templates per task, counted from the last one
    color: HoldoutSplit = "any"
    """Split of the colors of all objects of a task; "unseen" shares no colored object with "seen"."""
    side: HoldoutSplit = "any"
    phrasing: HoldoutSplit = "any"

    def __post_init__(self) -> None:
        for pair in self.color_object_pairs:
            color, _, noun = pair.partition(" ")
            lookup(PALETTE, color, f"color of the held-out pair {pair!r}:")
            if not noun:
                raise SimError(f"a held-out pair is a color and a thing such as 'green cube', got {pair!r}")
        for name in ("color", "side", "phrasing"):
            lookup(dict.fromkeys(("any", "seen", "unseen")), getattr(self, name), f"value of {name}")
        if self.num_templates < 0:
            raise SimError(f"num_templates must be >= 0, got {self.num_templates}")

    def allows(self, task: Task, layout: Layout) -> bool:
        """Whether an episode may start with that layout; "unseen" requires at least one held-out value."""
        pairs, sides = color_object_pairs_of(task, layout), task_sides_of(task, layout)
        nothing_unseen = (self.color == "unseen" and not pairs) or (self.side == "unseen" and not sides)
        return not nothing_unseen and not self.violations(pairs, sides)

    def violations(
        self, pairs: tuple[str, ...], sides: tuple[str, ...], phrasing: int | None = None
    ) -> tuple[str, ...]:
        """Return the values outside the split. `phrasing` counts from the end: -1 is the last template."""
        colors = _violations(self.color, self.color_object_pairs, pairs)
        violations = (*colors, *_violations(self.side, self.sides, sides))
        if phrasing is None or self.phrasing == "any":
            return violations
        is_allowed = (self.phrasing == "unseen") == (-phrasing <= self.num_templates)
        return violations if is_allowed else (*violations, f"phrasing {phrasing}")

    def sample_layout(self, task: Task, rng: np.random.Generator) -> Layout:
        """Draw a layout within the split; without a split it is the task's own draw.

        Raises `SimError` if `MAX_DRAWS` draws give no allowed layout.
        """
        from embodied_sim.episode_init import NUM_START_POSES  # by mujoco, the extra `sim`

        for _ in range(MAX_DRAWS):
            layout = task.draw_layout(rng, NUM_START_POSES)
            if self.allows(task, layout):
                return layout
        examples = ", ".join((*color_object_pairs_of(task, layout), *task_sides_of(task, layout)))
        raise SimError(
            f"task {task.name!r} has no start with color={self.color} and side={self.side}, for pairs "
            f"({', '.join(self.color_object_pairs) or 'none'}) and sides ({', '.join(self.sides) or 'none'}); "
            f"it has such as these: {examples or 'neither colors nor sides'}"
        )

    def phrasing_indices(self, task: Task) -> range:
        """Return the indices of the templates in the split. Raises `SimError` if there are none."""
        num_templates = len(task.templates)
        num_seen = max(num_templates - self.num_templates, 0)
        splits = {"any": range(num_templates), "seen": range(num_seen), "unseen": range(num_seen, num_templates)}
        indices = splits[self.phrasing]
        if not indices:
            raise SimError(
                f"task {task.name!r} has no {self.phrasing} phrasing: "
                f"of its {num_templates} the last {self.num_templates} are held out"
            )
        return indices


def _violations(split: HoldoutSplit, held_out: tuple[str, ...], present: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(entry for entry in present if split != "any" and (entry in held_out) != (split == "unseen"))


def color_object_pairs_of(task: Task, layout: Layout) -> tuple[str, ...]:
    """Return color and noun of every object of the task, e.g. ("green cube", "red cube")."""
    return tuple(f"{color} {prop.noun}" for color, prop in zip(layout.colors, task.object_props, strict=True))


def task_sides_of(task: Task, layout: Layout) -> tuple[str, ...]:
    """Return task and target side, e.g. ("push_to_zone left",); empty for tasks without sides."""
    return (f"{task.name} {task.sides[layout.side_index]}",) if task.sides else ()
