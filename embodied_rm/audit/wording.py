"""The same film under other words: of another wish, its opposite, nothing, or the same wish in other words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from embodied_rm.audit.material import Film, Material, Trial, finish, held
from embodied_rm.labels.steps import distinct_goal_of, sentences, task_of
from embodied_rm.types import Episode

Kin = Callable[[Episode, Episode], bool]
"""(episode, other): whether the other's instruction is meant."""


def another_goal(material: Material) -> list[Trial]:
    """Successes under the instruction of another goal of their task, e.g. another colour."""
    return _ended(material, _others(material, lambda e, o: _differ(e, o) and task_of(e) == task_of(o)))


def another_task(material: Material) -> list[Trial]:
    """Successes under the instruction of another task."""
    return _ended(material, _others(material, lambda e, o: _differ(e, o) and task_of(e) != task_of(o)))


def mismatched(material: Material) -> list[Trial]:
    """Successes under another wish, of whatever task, and under their own."""
    return _beside(material, _differ)


def negated(material: Material) -> list[Trial]:
    """Successes of what must not be done."""
    return _ended(material, [(episode, f"do not {episode.instruction}") for episode in material.successes])


def empty(material: Material) -> list[Trial]:
    """Successes of nothing that was asked for."""
    return _ended(material, [(episode, "") for episode in material.successes])


def paraphrased(material: Material) -> list[Trial]:
    """Successes under another phrasing of their own goal, and under their own."""
    return _beside(material, _same_wish)


def untouched(material: Material) -> list[Trial]:
    """Successes as they are."""
    return _ended(material, [(episode, episode.instruction) for episode in material.successes])


def _ended(material: Material, asked: Sequence[tuple[Episode, str]]) -> list[Trial]:
    return [(_film(material, replace(episode, instruction=text)),) for episode, text in asked]


def _beside(material: Material, kin: Kin) -> list[Trial]:
    pairs = _others(material, kin)
    return [(_film(material, replace(e, instruction=text)), _film(material, e)) for e, text in pairs]


def _film(material: Material, episode: Episode) -> Film:
    """Judged where the episode ends: on its way it may pass through what somebody else asked for."""
    return Film(episode=held(episode, material.rules.hold), judged_from=len(episode) - 1, ordered=finish(episode) + 1)


def _others(material: Material, kin: Kin) -> list[tuple[Episode, str]]:
    """Each success with one instruction of its kin, in turn from all that there are."""
    found = []
    for number, episode in enumerate(material.successes):
        pool = sorted({other.instruction for other in material.episodes if kin(episode, other)})
        if pool:
            found.append((episode, pool[number % len(pool)]))
    return found


def _differ(episode: Episode, other: Episode) -> bool:
    """Whether the other's wish is surely not fulfilled where the episode's own is."""
    own, foreign = distinct_goal_of(episode), distinct_goal_of(other)
    return None not in (own, foreign) and foreign not in (own, *sentences(episode, "fulfils"))


def _same_wish(episode: Episode, other: Episode) -> bool:
    goal = episode.meta.get("goal")
    return goal is not None and other.meta.get("goal") == goal and other.instruction != episode.instruction
