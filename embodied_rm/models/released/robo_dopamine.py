"""Robo-Dopamine's general reward model (arXiv 2512.23703): hops between two timesteps of three cameras.

It is a plain generative model (Qwen2.5-VL or Qwen3-VL), so an endpoint can serve it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.frame_history import MultiViewFrame
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import ParsedAnswer, Question, interleave_images, ordered_views
from embodied_rm.models.judges.released_prompts import ROBO_DOPAMINE_PROMPT
from embodied_rm.models.potential_fusion import GOAL_POTENTIAL, apply_hop, fuse_mean
from embodied_rm.models.released.answer_readers import read_hop
from embodied_rm.types import Frames

NUM_CAMERAS = 3  # Front, left wrist and right wrist. The first camera replaces missing ones, as in the authors' code.
SUCCESS_THRESHOLD = 0.95  # minimum potential of success: 1 - delta of the paper
PIXEL_LIMITS = (12_544, 76_800)  # minimum and maximum number of pixels per image in its training
PERSPECTIVES = ("incremental", "forward", "backward")


@dataclass(frozen=True)
class RoboDopamineQuestion(Question):
    """Hops to the current frame from the last scored frame, the first frame and the goal image, if there is one.

    The potential is the mean of the resulting potentials, as the authors recommend for learning.
    """

    predicts_success = True
    uses_previous_frame = True
    view_order: tuple[str, ...] = ()  # Front, left and right view. Empty: the order of the views.

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        return tuple(self._query(context, before) for before in self._anchors(context))

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        hops = [read_hop(answer.text or "") for answer in answers]
        if None in hops:
            return None
        potentials = (context.potential, 0.0, GOAL_POTENTIAL)
        perspectives = {
            name: apply_hop(anchor, hop)
            for name, anchor, hop in zip(PERSPECTIVES, potentials, hops, strict=False)
            if hop is not None
        }
        if context.num_scores == 0:  # as in the authors' recursion, which a negative first hop takes below 0
            perspectives["incremental"] = np.asarray(hops[0], np.float32)
        potential = float(fuse_mean(perspectives))
        return ParsedAnswer(potential, float(potential >= SUCCESS_THRESHOLD))

    def _anchors(self, context: EpisodeContext) -> list[list[Frames]]:
        """Return the "before" images of each query: one image per camera."""
        anchors = [self._three_views(frame, context) for frame in (context.previous, context.first)]
        return (
            anchors if context.goal is None else [*anchors, self._three_views(context.goal, context)[:1] * NUM_CAMERAS]
        )

    def _query(self, context: EpisodeContext, before: list[Frames]) -> Query:
        start, current = self._three_views(context.first, context)[0], self._three_views(context.current, context)
        end = np.full_like(start, 255) if context.goal is None else self._three_views(context.goal, context)[0]
        images = [start, end, *before, *current]
        return Query(parts=tuple(interleave_images(ROBO_DOPAMINE_PROMPT, context.instruction, images)), max_tokens=64)

    def _three_views(self, frame: MultiViewFrame, context: EpisodeContext) -> list[Frames]:
        views = ordered_views(frame, context, self.view_order)[:NUM_CAMERAS]
        return views + views[:1] * (NUM_CAMERAS - len(views))
