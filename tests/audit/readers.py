"""Episodes whose images say everything, a model that reads it all, and models that each neglect one thing.

Every pixel is (true progress in half percents, goal, view): what is covered, pasted or exchanged can be told.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from embodied_rm.models.reward_model import Capabilities
from embodied_rm.types import Array, BoolArray, Episode, RewardOutput

SIZE = 6
VIEWS = {"front": 10, "wrist": 20}
GOALS = {"lift red": 40, "lift blue": 80, "open": 120}
PHRASINGS = ("{}", "please {}", "would you {}")


def trial(name: str, percent: list[int], goal: str, *, phrasing: int = 0) -> Episode:
    """An episode whose true progress is `percent` / 200."""
    frames = {}
    for view, number in VIEWS.items():
        frames[view] = np.empty((len(percent), SIZE, SIZE, 3), np.uint8)
        for channel, values in enumerate((percent, GOALS[goal], number)):
            frames[view][..., channel] = np.reshape(values, (-1, 1, 1))
    return Episode(
        name=name,
        views=frames,
        instruction=PHRASINGS[phrasing].format(goal),
        fps=10.0,
        success=percent[-1] == 200,
        progress=np.array(percent, np.float32) / 200,
        metadata={"task": goal.split()[0], "goal": goal},
    )


def trials() -> list[Episode]:
    """Successes of two tasks, one of them with two goals, in two phrasings; a third phrasing is that of failures."""
    found = []
    for number, goal in enumerate(GOALS):
        for phrasing in (0, 1):
            rise = list(range(0, 200, 8 + number + phrasing))
            found.append(trial(f"good {goal} {phrasing}", [*rise, 200, 200, 200], goal, phrasing=phrasing))
        found.append(trial(f"stall {goal}", [*range(0, 80, 8), *[80] * 30], goal, phrasing=2))
        found.append(trial(f"undo {goal}", [*range(0, 160, 8), *range(160, -1, -8)], goal, phrasing=2))
    return found


@dataclass(frozen=True)
class Known:
    """What a reader remembers, a row each."""

    wanted: Array
    """Goal as it is painted; 0: an instruction that wants nothing that is known."""
    frames: Array
    """How many frames were judged."""
    value: Array
    alarmed: BoolArray

    def __len__(self) -> int:
        return len(self.wanted)

    def take(self, rows) -> Known:
        return Known(*(column[rows].copy() for column in vars(self).values()))

    def put(self, rows, other) -> Known:
        columns = [column.copy() for column in vars(self).values()]
        for column, new in zip(columns, vars(other).values(), strict=True):
            column[rows] = new
        return Known(*columns)

    def potential(self) -> Array:
        return self.value.copy()


@dataclass(frozen=True)
class Seen:
    """What the images of N rows say, with a column a view: all float or bool [N, V]."""

    progress: Array
    goal: Array
    uniform: BoolArray
    own: BoolArray
    """Whether the image is from this view."""
    corner: Array
    """Progress in the corner of the image."""

    @property
    def sound(self) -> BoolArray:
        return self.uniform & self.own & (self.goal > 0)


class Reader:
    """Reads all of it: done is what the instruction wants and every view shows, whole and from its own place."""

    phrasings: ClassVar[tuple[str, ...]] = PHRASINGS
    capabilities = Capabilities()

    def wish(self, instruction: str) -> int:
        wishes = {phrasing.format(goal): paint for goal, paint in GOALS.items() for phrasing in self.phrasings}
        return wishes.get(instruction, 0)

    def reset(self, views, instructions, goal=None) -> Known:
        zeros = np.zeros(len(views), np.float32)
        wanted = np.array([self.wish(text) for text in instructions], np.float32)
        return Known(wanted, zeros.copy(), zeros.copy(), np.zeros(len(views), bool))

    def step(self, memory: Known, views) -> tuple[RewardOutput, Known]:
        pixels = views.frames.astype(np.float32)
        first = pixels[:, :, :1, :1]
        numbers = np.array([VIEWS[name] for name in views.names], np.float32)
        middle = pixels[:, :, SIZE // 2, SIZE // 2]
        seen = Seen(
            progress=middle[..., 0] / 200,
            goal=middle[..., 1],
            uniform=(pixels == first).all(axis=(2, 3, 4)),
            own=middle[..., 2] == numbers,
            corner=pixels[:, :, 0, 0, 0] / 200,
        )
        memory = replace(memory, frames=memory.frames + 1, alarmed=self.alarm(memory, seen))
        value = np.clip(self.value(memory, seen), 0, 1).astype(np.float32)
        memory = replace(memory, value=value)
        success = self.done(memory, seen).astype(np.float32)
        return judged(value, success), memory

    def alarm(self, memory: Known, seen: Seen) -> BoolArray:
        return memory.alarmed

    def value(self, memory: Known, seen: Seen) -> Array:
        return np.where(seen.sound, seen.progress, 0).min(axis=1)

    def done(self, memory: Known, seen: Seen) -> BoolArray:
        asked = seen.goal == memory.wanted[:, None]
        return (seen.sound & asked & (seen.progress >= 1)).all(axis=1)


def judged(value: Array, success: Array) -> RewardOutput:
    """A `Progress` with nothing to say about stage and spread."""
    n = len(value)
    return RewardOutput(
        progress=value,
        valid=np.ones(n, bool),
        subtask=np.zeros(n, np.int64),
        success=success,
        uncertainty=np.zeros_like(value),
    )


class Constant(Reader):
    def value(self, memory, seen):
        return np.full(len(memory), 0.5)

    def done(self, memory, seen):
        return np.zeros(len(memory), bool)


class AlwaysDone(Reader):
    def done(self, memory, seen):
        return np.ones(len(memory), bool)


class Clock(Reader):
    """Looks at nothing: a thirtieth of the task is done in every frame."""

    def value(self, memory, seen):
        return memory.frames / 30

    def done(self, memory, seen):
        return memory.frames >= 28


class Deaf(Reader):
    """Judges by the images alone."""

    def done(self, memory, seen):
        return (seen.sound & (seen.progress >= 1)).all(axis=1)


class TaskOnly(Reader):
    """Knows which task is wanted, but not of what."""

    def done(self, memory, seen):
        lifts = seen.goal < GOALS["open"]
        same = (lifts == (memory.wanted < GOALS["open"])[:, None]) & (memory.wanted > 0)[:, None]
        return (seen.sound & same & (seen.progress >= 1)).all(axis=1)


class Keywords(Reader):
    """Does not hear "do not"."""

    def wish(self, instruction):
        return super().wish(instruction.removeprefix("do not "))


class Eager(Reader):
    """Takes silence for consent."""

    def done(self, memory, seen):
        asked = (seen.goal == memory.wanted[:, None]) | (memory.wanted == 0)[:, None]
        return (seen.sound & asked & (seen.progress >= 1)).all(axis=1)


class Literal(Reader):
    """Knows two of three phrasings, and loses itself under the third."""

    phrasings = PHRASINGS[:2]

    def value(self, memory, seen):
        return np.where(memory.wanted > 0, super().value(memory, seen), 0)


class OneEyed(Reader):
    """Asks the first view alone."""

    def done(self, memory, seen):
        asked = seen.goal == memory.wanted[:, None]
        return (seen.sound & asked & (seen.progress >= 1))[:, 0]


class Credulous(Reader):
    """Looks into the corner."""

    def done(self, memory, seen):
        return (memory.wanted == seen.goal[:, 0]) & (seen.corner >= 1).all(axis=1) & seen.own.all(axis=1)


class Nyctophile(Reader):
    """Takes darkness for the end."""

    def done(self, memory, seen):
        return super().done(memory, seen) | (seen.uniform & (seen.goal == 0)).all(axis=1)


class Impatient(Reader):
    """Says "done" at seven tenths."""

    def done(self, memory, seen):
        asked = seen.goal == memory.wanted[:, None]
        return (seen.sound & asked & (seen.progress >= 0.7)).all(axis=1)


class Confused(Reader):
    """Takes what one camera should not see for success."""

    def done(self, memory, seen):
        return super().done(memory, seen) | (~seen.own & (seen.goal > 0)).all(axis=1)


class Imaginative(Reader):
    """Takes what is hidden for done."""

    def done(self, memory, seen):
        hidden = ~seen.uniform & (seen.corner < 1)
        return super().done(memory, seen) | hidden.all(axis=1)


class Monocle(Reader):
    """Sees better with one eye: a single view is enough of a success."""

    def done(self, memory, seen):
        single = seen.progress.shape[1] == 1
        return super().done(memory, seen) | (single & seen.sound.all(axis=1))

    def value(self, memory, seen):
        value = super().value(memory, seen)
        return 1 - value if seen.progress.shape[1] == 1 else value


class Startled(Reader):
    """Takes a sudden loss of what was seen for the end, for good."""

    def alarm(self, memory, seen):
        fallen = memory.value - seen.progress.min(axis=1) > 0.2
        return memory.alarmed | (fallen & seen.sound.all(axis=1))

    def done(self, memory, seen):
        return super().done(memory, seen) | memory.alarmed


class Creeping(Reader):
    """A little progress for every frame, whatever it shows."""

    def value(self, memory, seen):
        return 0.8 * super().value(memory, seen) + 0.01 * memory.frames


class Proud(Reader):
    """Never gives back what it has granted."""

    def value(self, memory, seen):
        return np.maximum(memory.value, super().value(memory, seen))


class Shaky(Reader):
    """Never says the same twice: it counts its own calls."""

    def __init__(self) -> None:
        self.calls = 0

    def value(self, memory, seen):
        self.calls += 1
        return super().value(memory, seen) - 1e-6 * self.calls


class Forewarned(Reader):
    """Tells how unusual a state is only of videos longer than any before: what is told depends on the future."""

    def __init__(self) -> None:
        self.longest = 0.0

    def step(self, memory, views):
        progress, after = super().step(memory, views)
        told = after.frames >= self.longest
        self.longest = max(self.longest, float(after.frames.max()))
        return replace(progress, ood=np.where(told, 0.5, np.nan).astype(np.float32)), after


class Hindsight(Reader):
    """Divides by the length of the longest video that it has been shown: offline numbers."""

    def __init__(self) -> None:
        self.longest = 1.0

    def value(self, memory, seen):
        self.longest = max(self.longest, float(memory.frames.max()))
        return super().value(memory, seen) / self.longest
