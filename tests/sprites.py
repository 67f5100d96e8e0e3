"""A toy environment: a hand carries a square to its goal, rendered from two sides. Models learn it in seconds.

Two subtasks: the hand reaches the square, then carries it to the goal. Failures stop half-way.
"""

from __future__ import annotations

import numpy as np

from embodied_rm.types import Episode, Frames, Subtask

SIZE = 32
COLORS = {"red": (220, 40, 40), "blue": (50, 80, 230)}
TASKS = {"carry": "bring the {} square to the right", "return": "put the {} square back to the left"}


def episode(number: int, *, success: bool = True, task: str = "carry", length: int | None = None) -> Episode:
    """One trial, determined by `number`."""
    rng = np.random.default_rng(number)
    length = length or int(rng.integers(16, 28))
    reach, end = length // 2, length - 2
    stop = length if success else int(rng.integers(reach // 2, end - 3))
    progress = np.interp(np.minimum(np.arange(length), stop), [0, reach, end], [0, 0.5, 1]).astype(np.float32)
    color = list(COLORS)[number % 2]
    left, right = rng.uniform(6, 10), rng.uniform(22, 26)
    source, target = (left, right) if task == "carry" else (right, left)
    hand = np.interp(progress, [0, 0.5, 1], [16, source, target])
    square = np.interp(progress, [0, 0.5, 1], [source, source, target])
    # The hand moves down to the square and lifts it while carrying.
    height = np.interp(progress, [0, 0.5, 1], [5, 24, 12])
    lift = np.where(progress <= 0.5, 24, height)
    background = rng.integers(90, 160, 3)
    done = np.flatnonzero(progress >= 1)
    edges = [(0, reach, "reach"), (reach, length, "carry")]
    return Episode(
        name=f"sprite_{number:03d}_{task}",
        views={
            "front": draw(hand, height, square, lift, COLORS[color], background),
            "top": draw(hand, 16 + 0 * height, square, 20 + 0 * lift, COLORS[color], background[::-1]),
        },
        instruction=TASKS[task].format(color),
        fps=10.0,
        subtasks=tuple(Subtask(name=name, start=a, end=b) for a, b, name in edges if stop > a or success),
        success=bool(success and len(done)),
        progress=progress,
        metadata={"task": task, "outcome": "success" if success else "stall"},
    )


def draw(hand_x, hand_y, square_x, square_y, color, background) -> Frames:
    """uint8 [T, SIZE, SIZE, 3]: a square, and the hand as a dark frame over it."""
    y, x = np.mgrid[0:SIZE, 0:SIZE] + 0.5
    frames = np.empty((len(hand_x), SIZE, SIZE, 3), np.float64)
    frames[:] = background
    for frame, hx, hy, tx, ty in zip(frames, hand_x, hand_y, square_x, square_y, strict=True):
        for cx, cy, outer, paint in ((tx, ty, 3.0, color), (hx, hy, 4.0, (20, 20, 20))):
            share = np.clip(outer + 0.5 - np.maximum(abs(x - cx), abs(y - cy)), 0, 1)
            if outer > 3:
                share = share * np.clip(np.maximum(abs(x - cx), abs(y - cy)) - 2.5, 0, 1)
            frame += share[..., None] * (np.array(paint) - frame)
    return frames.round().astype(np.uint8)


def episodes(count: int, *, start: int = 0, failures: bool = True, task: str = "carry") -> list[Episode]:
    """`count` trials; every third one fails."""
    return [episode(start + i, success=not (failures and i % 3 == 2), task=task) for i in range(count)]
