"""Negative instructions: instructions of other goals than that of an episode."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from embodied_rm.labels.labeled_episode import LabeledEpisode
from embodied_rm.training.instruction_augment import InstructionAugmenter

NO_GOAL_FRACTION = 0.2
"""Fraction of negative instructions without a goal: half are negations of the episode's own, half are empty."""
NEGATION_PREFIXES = ("do not ", "don't ", "never ")


class NegativeInstructions:
    """Samples instructions of other goals, half of them of the same task.

    Their words are augmented like those of the own instructions. Otherwise an unusual word would reveal the own one.
    """

    def __init__(
        self,
        episodes: Sequence[LabeledEpisode],
        augmenter: InstructionAugmenter,
        extra_instructions: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`extra_instructions`: (task, instruction) of goals that no episode has."""
        self._augmenter = augmenter
        episodes_with_goal = [episode for episode in episodes if episode.recorded_goal is not None]
        examples = {(str(e.recorded_goal), e.task, text) for e in episodes_with_goal for text in e.instructions}
        known = sorted(examples | {(text, task, text) for task, text in extra_instructions})
        goals = {(goal, task) for goal, task, _ in known}
        implied_goals = {goal: {goal} for goal, _ in goals}
        for episode in episodes_with_goal:
            implied_goals[str(episode.recorded_goal)].update(episode.implied_goals)
        others = {goal: self._select_others(known, excluded) for goal, excluded in implied_goals.items()}
        self._by_goal = {goal: [(text, task) for _, task, text in rows] for goal, rows in others.items()}
        self._by_goal_and_task: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._of_nearest_goals: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for goal, task in goals:
            same_task = [(other, text) for other, other_task, text in others[goal] if other_task == task]
            distances = {other: count_different_words(goal, other) for other, _ in same_task}
            nearest = min(distances.values(), default=0)
            self._by_goal_and_task[goal, task] = [(text, task) for _, text in same_task]
            self._of_nearest_goals[goal, task] = [
                (text, task) for other, text in same_task if distances[other] == nearest
            ]

    @staticmethod
    def _select_others(known: Sequence[tuple[str, str, str]], excluded: set[str]) -> list[tuple[str, str, str]]:
        """Return the (goal, task, text) of other goals whose text is not that of an excluded goal too."""
        own_texts = {text for goal, _, text in known if goal in excluded}
        return [row for row in known if row[0] not in excluded and row[2] not in own_texts]

    def sample(self, episode: LabeledEpisode, rng: np.random.Generator) -> str | None:
        """Draw a negative instruction; None if no other goal is known.

        A fraction `NO_GOAL_FRACTION` is the negated own instruction or empty. Half of the others are of the same task,
        and half of those of the goals that differ in the fewest words: one color among four is not learned from rare
        examples.
        """
        if episode.recorded_goal is None or not self._by_goal[episode.recorded_goal]:
            return None
        if rng.random() < NO_GOAL_FRACTION:
            if rng.random() >= 0.5:
                return ""
            negation = NEGATION_PREFIXES[rng.integers(len(NEGATION_PREFIXES))]
            return negation + self._augmenter.augment(episode.sample_instruction(rng), episode.task, rng)
        key = episode.recorded_goal, episode.task
        candidates = self._by_goal[episode.recorded_goal]
        if self._by_goal_and_task[key] and rng.random() < 0.5:
            candidates = (self._of_nearest_goals if rng.random() < 0.5 else self._by_goal_and_task)[key]
        return self._augmenter.augment(*candidates[rng.integers(len(candidates))], rng)


def count_different_words(text: str, other_text: str) -> int:
    """Return the number of positions at which two texts have different words."""
    return sum(word != other for word, other in zip_longest(text.split(), other_text.split()))
