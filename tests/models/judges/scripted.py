"""A chat model whose answers are a function of the query, so that the expected scores are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.types import Episode


class Scripted:
    """A `ChatModel` that records every query."""

    def __init__(self, answer: Callable[[Query], Answer]) -> None:
        self.answer = answer
        self.queries: list[Query] = []
        self.calls = 0

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        self.calls += 1
        self.queries += queries
        return [self.answer(query) for query in queries]


def answer_in_order(*answers: str) -> Scripted:
    """Return a model that gives these texts, one per query."""
    remaining = iter(answers)
    return Scripted(lambda _: Answer(text=next(remaining)))


def images(query: Query) -> list[np.ndarray]:
    return [part for part in query.parts if not isinstance(part, str)]


def text(query: Query) -> str:
    return "".join(part for part in query.parts if isinstance(part, str))


def brightness(query: Query) -> int:
    """Return the red value at the center of the last image."""
    last = images(query)[-1]
    return int(last[last.shape[0] // 2, last.shape[1] // 2, 0])


def ramp(length: int, views: tuple[str, ...] = ("front",), start: int = 0, step: int = 10) -> Episode:
    """Return a video whose center gets brighter by `step` per frame."""
    frames = np.zeros((length, 8, 8, 3), np.uint8)
    frames[:, :, :4] = 255  # an image of a single color is not visible
    frames[:, 4, 4] = (start + step * np.arange(length))[:, None]
    return Episode(name="ramp", views=dict.fromkeys(views, frames), instruction="make it bright", fps=10.0)
