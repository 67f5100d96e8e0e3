"""Comparisons of two clips of different episodes: their table, and the targets of the scheme `compared`.

Source: RL-VLM-F (Wang et al., arXiv 2402.03681). A comparison says which of two clips of one instruction shows more of
the task done. The table is JSON Lines, one comparison per line, so that an interrupted labeling goes on with the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import DataError, UserError
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.labels.targets import Targets, outcome_targets
from embodied_rm.text_file import read_text
from embodied_rm.types import Episode

COMPARISONS_FILE = "comparisons.jsonl"
"""Name of the table in a run folder."""
ClipAnswer = Literal["first", "second", "neither", "contradiction", "unanswered"]
"""Which clip shows more of the task done. A contradiction depends on the order in which the clips were shown."""


@dataclass(frozen=True, kw_only=True)
class Clip:
    """A part of an episode: from `start` to `end`, both shares of its duration in [0, 1]."""

    episode: str  # name of the episode
    start: float
    end: float

    def frames(self, length: int) -> slice:
        """Return the frames of the clip in an episode of `length` frames, at least one."""
        first = round(self.start * (length - 1))
        return slice(first, max(round(self.end * (length - 1)), first) + 1)


@dataclass(frozen=True, kw_only=True)
class ClipComparison:
    """Two clips of different episodes of one goal, and which one is better."""

    first: Clip
    second: Clip
    goal: str
    answer: ClipAnswer = "unanswered"

    @property
    def is_decided(self) -> bool:
        """Whether one of the clips is better."""
        return self.answer in ("first", "second")


def draw_clip_pairs(goals: Mapping[str, str], count: int, clip_share: float, seed: int) -> list[ClipComparison]:
    """Draw pairs of clips of different episodes of one goal, unanswered.

    Args:
        goals: Name of each episode -> its goal.
        count: Number of pairs.
        clip_share: Duration of a clip, as a share of its episode, in (0, 1].
        seed: Of the drawing.

    Raises:
        DataError: No goal has two episodes.
    """
    rng = np.random.default_rng(seed)
    by_goal: dict[str, list[str]] = {}
    for name, goal in goals.items():
        by_goal.setdefault(goal, []).append(name)
    shared = {goal: names for goal, names in by_goal.items() if len(names) > 1}
    if not shared:
        raise DataError(f"no two of these {len(goals)} episodes have the same instruction: nothing can be compared")
    weights = np.array([len(names) for names in shared.values()], float)
    pairs = []
    for goal in rng.choice(list(shared), count, p=weights / weights.sum()).tolist():
        drawn = rng.choice(shared[goal], 2, replace=False).tolist()
        first, second = (draw_clip(name, clip_share, rng) for name in drawn)
        pairs.append(ClipComparison(first=first, second=second, goal=goal))
    return pairs


def draw_clip(name: str, clip_share: float, rng: np.random.Generator) -> Clip:
    """Draw a clip of an episode."""
    start = rng.uniform(0, 1 - clip_share)
    return Clip(episode=name, start=round(start, 4), end=round(start + clip_share, 4))


def append_comparisons(path: Path, comparisons: Iterable[ClipComparison]) -> None:
    """Append comparisons to a table."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(map(comparison_line, comparisons))


def write_comparisons(path: Path, comparisons: Iterable[ClipComparison]) -> None:
    """Write a whole table."""
    write_atomic(path, "".join(map(comparison_line, comparisons)))


def comparison_line(comparison: ClipComparison) -> str:
    """Return the line of a comparison."""
    return json.dumps(asdict(comparison)) + "\n"


def read_comparisons(path: Path) -> list[ClipComparison]:
    """Read a table, or that of a run folder; the last line of a killed labeling may be incomplete and is left out.

    Raises:
        UserError: There is no table.
        DataError: A line is not a comparison.
    """
    path = path / COMPARISONS_FILE if path.is_dir() else path
    if not path.is_file():
        raise UserError(f"{path} does not exist: embodied-rm prefer writes it")
    *lines, last = read_text(path).split("\n")
    if last and is_json(last):
        lines.append(last)
    return [parse_comparison(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]


def is_json(line: str) -> bool:
    """Return whether a line is whole: an object that is cut is not JSON."""
    try:
        json.loads(line)
    except ValueError:
        return False
    except RecursionError:  # it is named by `parse_comparison`
        return True
    return True


def read_answers(path: Path, pairs: Sequence[ClipComparison]) -> list[ClipComparison]:
    """Read the table of an interrupted labeling of these pairs: the first of them, with answers; none without a table.

    Raises:
        UserError: The table has comparisons of other pairs.
    """
    answered = read_comparisons(path) if path.exists() else []
    if [replace(comparison, answer="unanswered") for comparison in answered] != list(pairs[: len(answered)]):
        raise UserError(f"{path} has comparisons of other pairs: name another out=, or delete it")
    return answered


def parse_comparison(line: str, source: str) -> ClipComparison:
    """Parse a line; `DataError` with the name of `source` if it is not a comparison."""
    try:
        values = json.loads(line)
        first, second = (Clip(**values.pop(name)) for name in ("first", "second"))
        comparison = ClipComparison(first=first, second=second, **values)
        is_valid = isinstance(comparison.goal, str) and is_clip(first) and is_clip(second)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"{source}: not a comparison of two clips ({error})") from None
    if not is_valid:
        raise DataError(f"{source}: not a comparison of two clips of episodes from 0 <= start to end <= 1")
    if comparison.answer not in get_args(ClipAnswer):
        raise DataError(f"{source}: answer must be one of {', '.join(get_args(ClipAnswer))}, got {comparison.answer!r}")
    return comparison


def is_clip(clip: Clip) -> bool:
    """Return whether a clip has the name of an episode and a part of it."""
    are_numbers = all(type(share) in (int, float) for share in (clip.start, clip.end))
    return isinstance(clip.episode, str) and are_numbers and 0 <= clip.start <= clip.end <= 1


def match_comparisons(comparisons: Iterable[ClipComparison], episodes: Sequence[Episode]) -> list[ClipComparison]:
    """Return the decided comparisons whose episodes are among these.

    Raises:
        DataError: None is, or an episode of that name has another instruction: the table is of other data.
    """
    goals = {episode.name: goal_of(episode) for episode in episodes}
    if len(goals) < len(episodes):
        raise DataError(f"comparisons name episodes, and {len(episodes) - len(goals)} of these have a name twice")
    decided = [comparison for comparison in comparisons if comparison.is_decided]
    matched = [c for c in decided if c.first.episode in goals and c.second.episode in goals]
    if not matched:
        raise DataError(f"none of {len(decided)} decided comparisons is of these {len(episodes)} episodes")
    for comparison in matched:
        for name in (comparison.first.episode, comparison.second.episode):
            if goals[name] != comparison.goal:
                raise DataError(
                    f"the comparisons are of other data: {name} is there {comparison.goal!r}, here {goals[name]!r}"
                )
    return matched


def label(episodes: Sequence[Episode]) -> list[Targets]:
    """Return targets without progress, since comparisons are of pairs of episodes; and the outcome, if recorded."""
    return [outcome_targets(episode) for episode in episodes]
