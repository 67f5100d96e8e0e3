"""RoboReward: a grade from 1 to 5 for a film up to now. A plain generative model (Qwen3-VL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.models.judges import parse
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import GRADES, Said, cameras, chances, graded
from embodied_rm.models.judges.released_prompts import ROBO_REWARD

FRAMES = 16
"""Most frames of a film, as Large Reward Models asks it; a second apart, as it was trained."""


@dataclass(frozen=True)
class Grade:
    """The grade of the film so far, of one camera: (grade - 1) / 4; done is a 5."""

    order: tuple[str, ...] = ()
    """The view it is shown is the first of these that is there; none: the first."""
    tells_success: bool = True
    looks_back: bool = False
    keeps: int = 64

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        shown = moment.film.evenly(moment.now, FRAMES)
        frames = [cameras(picture, moment, self.order)[0] for picture in shown]
        film = np.stack(frames * 2 if len(frames) == 1 else frames)  # a film has two frames at least
        task = ROBO_REWARD.replace("{instruction}", moment.instruction)
        return (Query(parts=(film, task), max_tokens=128),)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        return graded(chances(answers[0], GRADES, parse.answer))
