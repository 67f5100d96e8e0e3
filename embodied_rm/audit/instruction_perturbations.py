"""Perturbed instructions: another goal, a negation, none, or a paraphrase."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from embodied_rm.audit.test_set import AuditClip, AuditDataset, AuditTrial, completion_frame
from embodied_rm.labels.subtasks import recorded_goal_of, split_text_column, task_of
from embodied_rm.types import Episode

InstructionFilter = Callable[[Episode, Episode], bool]
"""(episode, other) -> whether the instruction of the other one is used."""


def another_goal(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes under the instruction of another goal of their task, e.g. another color."""
    return _make_trials(
        dataset, _pick_instructions(dataset, lambda e, o: _has_different_goal(e, o) and task_of(e) == task_of(o))
    )


def another_task(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes under the instruction of another task."""
    return _make_trials(
        dataset, _pick_instructions(dataset, lambda e, o: _has_different_goal(e, o) and task_of(e) != task_of(o))
    )


def another_instruction(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes under another instruction, of any task, and under their own."""
    return _make_paired_trials(dataset, _has_different_goal)


def negate_instruction(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes under the negation of their instruction."""
    return _make_trials(dataset, [(episode, f"do not {episode.instruction}") for episode in dataset.successes])


def empty_instruction(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes under an empty instruction."""
    return _make_trials(dataset, [(episode, "") for episode in dataset.successes])


def paraphrase_instruction(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes under a paraphrase of their instruction, and under their own."""
    return _make_paired_trials(dataset, _is_paraphrase)


def unmodified(dataset: AuditDataset) -> list[AuditTrial]:
    """Successes, unmodified."""
    return _make_trials(dataset, [(episode, episode.instruction) for episode in dataset.successes])


def _make_trials(dataset: AuditDataset, pairs: Sequence[tuple[Episode, str]]) -> list[AuditTrial]:
    return [(_make_clip(dataset, replace(episode, instruction=instruction)),) for episode, instruction in pairs]


def _make_paired_trials(dataset: AuditDataset, is_match: InstructionFilter) -> list[AuditTrial]:
    pairs = _pick_instructions(dataset, is_match)
    return [
        (_make_clip(dataset, replace(episode, instruction=instruction)), _make_clip(dataset, episode))
        for episode, instruction in pairs
    ]


def _make_clip(dataset: AuditDataset, episode: Episode) -> AuditClip:
    """Return the clip, evaluated at its end: before, it may pass through the goal of another instruction."""
    num_ordered = completion_frame(episode) + 1
    return AuditClip(dataset.hold_end(episode), eval_start=len(episode) - 1, num_ordered=num_ordered)


def _pick_instructions(dataset: AuditDataset, is_match: InstructionFilter) -> list[tuple[Episode, str]]:
    """Return each success with one matching instruction, in turn from all matching ones."""
    pairs = []
    for index, episode in enumerate(dataset.successes):
        instructions = sorted({other.instruction for other in dataset.episodes if is_match(episode, other)})
        if instructions:
            pairs.append((episode, instructions[index % len(instructions)]))
    return pairs


def _has_different_goal(episode: Episode, other: Episode) -> bool:
    """Return whether the goal of the other one is not reached when that of the episode is."""
    own_goal, other_goal = recorded_goal_of(episode), recorded_goal_of(other)
    return None not in (own_goal, other_goal) and other_goal not in (own_goal, *split_text_column(episode, "fulfils"))


def _is_paraphrase(episode: Episode, other: Episode) -> bool:
    goal = episode.metadata.get("goal")
    return goal is not None and other.metadata.get("goal") == goal and other.instruction != episode.instruction
