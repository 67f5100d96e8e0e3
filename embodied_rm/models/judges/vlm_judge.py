"""`VlmJudge`: a vision-language model as a `RewardModel`, queried with one question at every timestep."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from embodied_rm.client.arrays import to_numpy
from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import UNPARSABLE_ANSWER, Answer, ChatModel
from embodied_rm.models.judges.frame_history import MultiViewFrame, empty_history
from embodied_rm.models.judges.judge_state import EpisodeContext, JudgeState
from embodied_rm.models.judges.questions import ParsedAnswer, Question
from embodied_rm.models.reward_model import (
    Capabilities,
    Demonstration,
    InputSpec,
    RewardState,
    check_reset,
    check_step,
    make_plain_output,
)
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.types import RewardOutput, Views


class FrameScore(NamedTuple):
    """The context after one timestep, and whether its frame was scored."""

    context: EpisodeContext
    valid: bool
    uncertainty: float = 0.0


class VlmJudge:
    """A `RewardModel` that queries a vision-language model.

    It predicts no subtasks. A frame without an answer is invalid and keeps the previous potential. It ignores
    demonstrations, and shows the goal image if the question has a place for it.
    """

    def __init__(
        self, chat: ChatModel, question: Question, input_spec: InputSpec | None = None, goal: Views | None = None
    ) -> None:
        """Take a model and a question; `goal`, of one row, is that of episodes whose `reset` has none."""
        self.chat, self.question, self.input_spec = chat, question, input_spec or InputSpec()
        self.goal = goal
        self.failures: Counter[str] = Counter()
        """Number of unscored frames by reason, see `chat.FAILURES`."""
        self.capabilities = Capabilities(
            predicts_success=question.predicts_success, serializable_state=True, failures=self.failures
        )

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> JudgeState:
        """Start N episodes at their first frames, without a query; `UserError` if the question needs goal images."""
        if goal is None and self.goal is not None:
            goal = self.goal.select(np.zeros(len(views), np.int64))
        check_reset(len(views), instructions, goal)
        if goal is None and self.question.needs_goal:
            raise UserError("this judge needs a goal image: set judge.goal_images=[front.png], or goal= of reset")
        first_frames, view_names = frames_per_env(views), tuple(views.names)
        goal_frames = [None] * len(first_frames) if goal is None else align_goal_views(goal, view_names)
        rows = zip(map(remove_token_brackets, instructions), first_frames, goal_frames, strict=True)
        contexts = (
            EpisodeContext(
                instruction=text,
                view_names=view_names,
                history=empty_history(self.question.history_capacity, frame),
                first=frame,
                previous=frame,
                current=frame,
                goal=goal_frame,
            )
            for text, frame, goal_frame in rows
        )
        return JudgeState(tuple(contexts))

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, JudgeState]:
        """Score one new frame set per row; the queries of all rows are sent together."""
        assert isinstance(state, JudgeState)
        check_step(len(state), len(views))
        rows = zip(state.contexts, self._extract_frames(state, views), strict=True)
        contexts, visible = [context.advance(frame) for context, frame in rows], has_visible_view(views)
        answered = zip(contexts, self._ask_visible(contexts, visible), strict=True)
        scores = [self._parse_answers(context, answers) for context, answers in answered]
        return to_reward_output(scores), JudgeState(tuple(score.context for score in scores))

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, JudgeState]:
        """Score T consecutive frames of one episode, as `step` does, with all queries sent together.

        If the question uses the last scored frame, frames after an unscored one are queried again.
        """
        assert isinstance(state, JudgeState) and len(state) == 1
        (latest,) = state.contexts
        visible = has_visible_view(views)
        candidates = []
        for frame in self._extract_frames(state, views):
            latest = latest.advance(frame)
            candidates.append(latest)
            latest = latest.with_current_as_previous()
        (last,), scores = state.contexts, []
        for candidate, answers in zip(candidates, self._ask_visible(candidates, visible), strict=True):
            context = candidate.with_last_score(last)
            if answers and self.question.uses_previous_frame and context.previous is not candidate.previous:
                (answers,) = self._ask_visible([context], [True])
            scores.append(self._parse_answers(context, answers))
            last = scores[-1].context
        return to_reward_output(scores), JudgeState((last,))

    def _extract_frames(self, state: JudgeState, views: Views) -> list[MultiViewFrame]:
        for context in state.contexts[:1]:
            if context.view_names != tuple(views.names):
                expected, actual = (", ".join(names) for names in (context.view_names, views.names))
                raise UserError(f"the episodes started with the views {expected}, got {actual}")
        return frames_per_env(views)

    def _ask_visible(self, contexts: Sequence[EpisodeContext], visible: Sequence[bool]) -> list[list[Answer]]:
        """Return the answers of each visible context, none for the others; all queries are sent together."""
        rows = zip(contexts, visible, strict=True)
        queries = [self.question.build_queries(context) if is_visible else () for context, is_visible in rows]
        flat_queries = [query for group in queries for query in group]
        answers = iter(self.chat.ask(flat_queries) if flat_queries else ())
        return [[next(answers) for _ in group] for group in queries]

    def _parse_answers(self, context: EpisodeContext, answers: Sequence[Answer]) -> FrameScore:
        """Return the score of a timestep. No answers: no view is visible."""
        if not answers:
            return FrameScore(context, False)
        failure = next((answer.failure for answer in answers if answer.failure is not None), None)
        parsed: ParsedAnswer | None = None if failure else self.question.parse_answers(answers, context)
        if parsed is None:
            self.failures[failure or UNPARSABLE_ANSWER] += 1
            return FrameScore(context, False)
        return FrameScore(context.with_score(parsed.potential, parsed.success), True, parsed.uncertainty)


def remove_token_brackets(instruction: str) -> str:
    """Replace angle brackets, so that the instruction contains no special token of any model."""
    return instruction.translate(str.maketrans("<>", "()"))


def has_visible_view(views: Views) -> list[bool]:
    """Return for each environment whether any view is visible."""
    return [bool(view_mask.any()) for view_mask in visible_views(views)]


def frames_per_env(views: Views) -> list[MultiViewFrame]:
    """Return one frame of all cameras per environment."""
    frames = to_numpy(views.frames)
    return [MultiViewFrame(*frame_and_mask) for frame_and_mask in zip(frames, visible_views(views), strict=True)]


def align_goal_views(goal: Views, names: Sequence[str]) -> list[MultiViewFrame | None]:
    """Return the goal images of each environment with the views `names`; `UserError` if one has none of them."""
    goal_frames, blank = frames_per_env(goal), np.zeros_like(frames_per_env(goal)[0].frames[0])
    aligned_frames: list[MultiViewFrame | None] = []
    for goal_frame in goal_frames:
        frames_by_view = {name: frame for name, frame in goal_frame.by_view(goal.names).items() if name in names}
        if not frames_by_view:
            raise UserError(f"the goal images have none of the views {', '.join(names)}")
        frames = np.stack([frames_by_view.get(name, blank) for name in names])
        aligned_frames.append(MultiViewFrame(frames, np.array([name in frames_by_view for name in names])))
    return aligned_frames


def to_reward_output(scores: Sequence[FrameScore]) -> RewardOutput:
    """Convert scores to a prediction."""
    progress = np.array([score.context.progress for score in scores], np.float32)
    success = np.array([score.context.success for score in scores], np.float32)
    output = make_plain_output(progress, np.array([score.valid for score in scores], bool), success)
    return replace(output, uncertainty=np.array([score.uncertainty for score in scores], np.float32))
