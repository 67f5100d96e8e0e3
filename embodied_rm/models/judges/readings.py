"""`ThreeReadings`: one question to three readers of the evidence; their median, and their disagreement as uncertainty.

Source: ReAgent-V (Zhou et al., arXiv 2506.01300), whose model reflects as a conservative, a neutral and an aggressive
reader before it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.questions import ParsedAnswer, Question

if TYPE_CHECKING:
    from embodied_rm.models.judges.judge_state import EpisodeContext

READERS = (
    "Be conservative: count only what the images show clearly.",
    "Be neutral: weigh what the images show for and against.",
    "Be aggressive: count what the images make likely, even if a part is hidden.",
)
"""What the system's turn adds for each reader."""


class ThreeReadings(Question):
    """A `Question` that asks another one three times.

    The value is the median of the readings; the uncertainty is half their range. One reading without an answer leaves
    the frame unscored.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.predicts_success = question.predicts_success
        self.uses_previous_frame = question.uses_previous_frame
        self.needs_goal = question.needs_goal
        self.history_capacity = question.history_capacity

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        queries = self.question.build_queries(context)
        return tuple(
            replace(query, system=f"{query.system} {reader}".strip()) for reader in READERS for query in queries
        )

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        count = len(answers) // len(READERS)
        parsed = [
            self.question.parse_answers(answers[start : start + count], context)
            for start in range(0, len(answers), count)
        ]
        readings = [reading for reading in parsed if reading is not None]
        if len(readings) < len(READERS):
            return None
        potentials = [reading.potential for reading in readings]
        return ParsedAnswer(
            potential=median(potentials),
            success=median(reading.success for reading in readings),
            uncertainty=(max(potentials) - min(potentials)) / 2,
        )
