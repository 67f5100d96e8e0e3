"""Episodes whose images encode everything, a perfect model, and models with one defect each.

Each pixel is (true progress in half percents, goal, view), so that covered, pasted and swapped images are detectable.
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
    """Return an episode whose true progress is `percent` / 200."""
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
    """Return successes of two tasks, one with two goals, in two phrasings, and failures in a third phrasing."""
    episodes = []
    for number, goal in enumerate(GOALS):
        for phrasing in (0, 1):
            rise = list(range(0, 200, 8 + number + phrasing))
            episodes.append(trial(f"good {goal} {phrasing}", [*rise, 200, 200, 200], goal, phrasing=phrasing))
        episodes.append(trial(f"stall {goal}", [*range(0, 80, 8), *[80] * 30], goal, phrasing=2))
        episodes.append(trial(f"undo {goal}", [*range(0, 160, 8), *range(160, -1, -8)], goal, phrasing=2))
    return episodes


@dataclass(frozen=True)
class KnownState:
    """State of a model, one row per episode."""

    wanted: Array
    """Encoded goal of the instruction; 0: unknown."""
    frames: Array
    """Number of scored frames."""
    value: Array
    has_dropped: BoolArray

    def __len__(self) -> int:
        return len(self.wanted)

    def take(self, rows) -> KnownState:
        return KnownState(*(column[rows].copy() for column in vars(self).values()))

    def put(self, rows, other) -> KnownState:
        columns = [column.copy() for column in vars(self).values()]
        for column, new in zip(columns, vars(other).values(), strict=True):
            column[rows] = new
        return KnownState(*columns)

    def potential(self) -> Array:
        return self.value.copy()


@dataclass(frozen=True)
class DecodedImages:
    """Decoded images of N rows, float or bool [N, V] with one column per view."""

    progress: Array
    goal: Array
    uniform: BoolArray
    own: BoolArray
    """Whether the image is that of this view."""
    corner: Array
    """Progress that the corner of the image encodes."""

    @property
    def intact(self) -> BoolArray:
        return self.uniform & self.own & (self.goal > 0)


class PerfectModel:
    """A perfect model: success if all views are intact and show the completed goal of the instruction."""

    phrasings: ClassVar[tuple[str, ...]] = PHRASINGS
    capabilities = Capabilities()

    def goal_code(self, instruction: str) -> int:
        codes = {phrasing.format(goal): paint for goal, paint in GOALS.items() for phrasing in self.phrasings}
        return codes.get(instruction, 0)

    def reset(self, views, instructions, goal=None) -> KnownState:
        zeros = np.zeros(len(views), np.float32)
        wanted = np.array([self.goal_code(text) for text in instructions], np.float32)
        return KnownState(wanted, zeros.copy(), zeros.copy(), np.zeros(len(views), bool))

    def step(self, state: KnownState, views) -> tuple[RewardOutput, KnownState]:
        pixels = views.frames.astype(np.float32)
        first = pixels[:, :, :1, :1]
        numbers = np.array([VIEWS[name] for name in views.names], np.float32)
        middle = pixels[:, :, SIZE // 2, SIZE // 2]
        images = DecodedImages(
            progress=middle[..., 0] / 200,
            goal=middle[..., 1],
            uniform=(pixels == first).all(axis=(2, 3, 4)),
            own=middle[..., 2] == numbers,
            corner=pixels[:, :, 0, 0, 0] / 200,
        )
        state = replace(state, frames=state.frames + 1, has_dropped=self.dropped(state, images))
        value = np.clip(self.value(state, images), 0, 1).astype(np.float32)
        state = replace(state, value=value)
        success = self.done(state, images).astype(np.float32)
        return make_output(value, success), state

    def dropped(self, state: KnownState, images: DecodedImages) -> BoolArray:
        return state.has_dropped

    def value(self, state: KnownState, images: DecodedImages) -> Array:
        return np.where(images.intact, images.progress, 0).min(axis=1)

    def done(self, state: KnownState, images: DecodedImages) -> BoolArray:
        matches = images.goal == state.wanted[:, None]
        return (images.intact & matches & (images.progress >= 1)).all(axis=1)


def make_output(value: Array, success: Array) -> RewardOutput:
    """Return a `RewardOutput` without subtask and uncertainty."""
    n = len(value)
    return RewardOutput(
        progress=value,
        valid=np.ones(n, bool),
        subtask=np.zeros(n, np.int64),
        success=success,
        uncertainty=np.zeros_like(value),
    )


class Constant(PerfectModel):
    def value(self, state, images):
        return np.full(len(state), 0.5)

    def done(self, state, images):
        return np.zeros(len(state), bool)


class AlwaysDone(PerfectModel):
    def done(self, state, images):
        return np.ones(len(state), bool)


class TimeModel(PerfectModel):
    """Ignores images: progress rises by 1/30 per frame."""

    def value(self, state, images):
        return state.frames / 30

    def done(self, state, images):
        return state.frames >= 28


class IgnoresInstruction(PerfectModel):
    """Ignores the instruction."""

    def done(self, state, images):
        return (images.intact & (images.progress >= 1)).all(axis=1)


class TaskOnly(PerfectModel):
    """Reads the task of the instruction and not its object."""

    def done(self, state, images):
        lifts = images.goal < GOALS["open"]
        same = (lifts == (state.wanted < GOALS["open"])[:, None]) & (state.wanted > 0)[:, None]
        return (images.intact & same & (images.progress >= 1)).all(axis=1)


class Keywords(PerfectModel):
    """Ignores "do not"."""

    def goal_code(self, instruction):
        return super().goal_code(instruction.removeprefix("do not "))


class EmptyInstructionIsDone(PerfectModel):
    """Accepts every goal for an empty instruction."""

    def done(self, state, images):
        matches = (images.goal == state.wanted[:, None]) | (state.wanted == 0)[:, None]
        return (images.intact & matches & (images.progress >= 1)).all(axis=1)


class TwoPhrasings(PerfectModel):
    """Knows two of three phrasings, and has no progress for the third."""

    phrasings = PHRASINGS[:2]

    def value(self, state, images):
        return np.where(state.wanted > 0, super().value(state, images), 0)


class FirstViewOnly(PerfectModel):
    """Uses only the first view for success."""

    def done(self, state, images):
        matches = images.goal == state.wanted[:, None]
        return (images.intact & matches & (images.progress >= 1))[:, 0]


class TrustsCorner(PerfectModel):
    """Uses the corner of the image for success."""

    def done(self, state, images):
        return (state.wanted == images.goal[:, 0]) & (images.corner >= 1).all(axis=1) & images.own.all(axis=1)


class BlackIsDone(PerfectModel):
    """Predicts success for black images."""

    def done(self, state, images):
        return super().done(state, images) | (images.uniform & (images.goal == 0)).all(axis=1)


class EarlySuccess(PerfectModel):
    """Predicts success at progress 0.7."""

    def done(self, state, images):
        matches = images.goal == state.wanted[:, None]
        return (images.intact & matches & (images.progress >= 0.7)).all(axis=1)


class SwappedViewIsDone(PerfectModel):
    """Predicts success for images of another view."""

    def done(self, state, images):
        return super().done(state, images) | (~images.own & (images.goal > 0)).all(axis=1)


class HiddenIsDone(PerfectModel):
    """Predicts success for half-covered images."""

    def done(self, state, images):
        hidden = ~images.uniform & (images.corner < 1)
        return super().done(state, images) | hidden.all(axis=1)


class SingleViewIsDone(PerfectModel):
    """Predicts success for a single view, and inverts its progress."""

    def done(self, state, images):
        single = images.progress.shape[1] == 1
        return super().done(state, images) | (single & images.intact.all(axis=1))

    def value(self, state, images):
        value = super().value(state, images)
        return 1 - value if images.progress.shape[1] == 1 else value


class ProgressDropIsDone(PerfectModel):
    """Predicts success after a sudden drop of progress."""

    def dropped(self, state, images):
        fallen = state.value - images.progress.min(axis=1) > 0.2
        return state.has_dropped | (fallen & images.intact.all(axis=1))

    def done(self, state, images):
        return super().done(state, images) | state.has_dropped


class CreepingProgress(PerfectModel):
    """Adds progress for each frame."""

    def value(self, state, images):
        return 0.8 * super().value(state, images) + 0.01 * state.frames


class MonotonicProgress(PerfectModel):
    """Progress never falls."""

    def value(self, state, images):
        return np.maximum(state.value, super().value(state, images))


class CallCounting(PerfectModel):
    """Progress depends on the number of calls."""

    def __init__(self) -> None:
        self.calls = 0

    def value(self, state, images):
        self.calls += 1
        return super().value(state, images) - 1e-6 * self.calls


class FutureOod(PerfectModel):
    """Has an out-of-distribution value only for the longest video so far, so it depends on the future."""

    def __init__(self) -> None:
        self.longest = 0.0

    def step(self, state, views):
        progress, after = super().step(state, views)
        is_longest = after.frames >= self.longest
        self.longest = max(self.longest, float(after.frames.max()))
        return replace(progress, ood=np.where(is_longest, 0.5, np.nan).astype(np.float32)), after


class Hindsight(PerfectModel):
    """Divides progress by the length of the longest video so far, as offline scores do."""

    def __init__(self) -> None:
        self.longest = 1.0

    def value(self, state, images):
        self.longest = max(self.longest, float(state.frames.max()))
        return super().value(state, images) / self.longest
