"""Robo-Dopamine's general reward model (arXiv 2512.23703): hops between two moments of three cameras.

A plain generative model (Qwen2.5-VL or Qwen3-VL), so an endpoint may serve it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.fusion import GOAL, apply_hop, fuse
from embodied_rm.models.judges import parse
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.film import Picture
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import Said, cameras, interleaved
from embodied_rm.models.judges.released_prompts import ROBO_DOPAMINE
from embodied_rm.types import Frames

SCORE = re.compile(r"<score>\s*([+-]?\d+(?:\.\d+)?)\s*%?")
CAMERAS = 3
"""Front, left wrist and right wrist; where there are fewer, the first one stands in, as its authors do."""
DONE = 0.95
"""Potential from which the task is done: 1 - delta of the paper."""
PIXELS = (12_544, 76_800)
"""The fewest and the most that it was trained on."""
PERSPECTIVES = ("incremental", "forward", "backward")


@dataclass(frozen=True)
class Hops:
    """The hop to the present frame from the one last scored, from the first one and, where there is one, from the goal
    picture; the potential is the mean of what the three make of it, as its authors recommend for learning."""

    order: tuple[str, ...] = ()
    """Which views are front, left and right; none: in the order in which they come."""
    tells_success: bool = True
    looks_back: bool = True
    keeps: int = 1

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        return tuple(self._query(moment, before) for before in self._anchors(moment))

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        hops = [parse.percent(SCORE, answer.text or "", low=-1.0) for answer in answers]
        if None in hops:
            return None
        potentials = (moment.value, 0.0, GOAL)
        perspectives = {
            name: apply_hop(anchor, hop)
            for name, anchor, hop in zip(PERSPECTIVES, potentials, hops, strict=False)
            if hop is not None
        }
        value = float(fuse("mean", moment.value, perspectives))
        return Said(value, float(value >= DONE))

    def _anchors(self, moment: Moment) -> list[list[Frames]]:
        """What is before: each time a picture of every camera."""
        seen = [self._three(picture, moment) for picture in (moment.previous, moment.first)]
        return seen if moment.goal is None else [*seen, self._three(moment.goal, moment)[:1] * CAMERAS]

    def _query(self, moment: Moment, before: list[Frames]) -> Query:
        start, now = self._three(moment.first, moment)[0], self._three(moment.now, moment)
        end = np.full_like(start, 255) if moment.goal is None else self._three(moment.goal, moment)[0]
        parts = interleaved(ROBO_DOPAMINE, moment.instruction, [start, end, *before, *now])
        return Query(parts=tuple(parts), max_tokens=64)

    def _three(self, picture: Picture, moment: Moment) -> list[Frames]:
        seen = cameras(picture, moment, self.order)[:CAMERAS]
        return seen + seen[:1] * (CAMERAS - len(seen))
