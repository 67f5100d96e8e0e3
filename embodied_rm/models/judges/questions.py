"""Questions to a vision-language model about a timestep, and the potentials that follow from the answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from embodied_rm.models.judges import parse, prompts
from embodied_rm.models.judges.chat import Answer, ContentPart, Query
from embodied_rm.models.judges.frame_history import MultiViewFrame
from embodied_rm.models.judges.frame_selection import EvenFrames, FrameSelection
from embodied_rm.models.potential_fusion import apply_hop
from embodied_rm.types import Frames

if TYPE_CHECKING:
    from embodied_rm.models.judges.judge_state import EpisodeContext

CLOSER_HOP = 0.1  # hop of the answer "closer"; "farther" is the negative hop
MAX_HISTORY_FRAMES = 8  # maximum number of timesteps per query
MIN_LOGPROB, MAX_LOGPROB = -25.0, -5.0
"""log P("True") at progress 0 and 1. The bounds are fixed: bounds per episode would need its end."""
UNKNOWN_SUCCESS = math.nan  # success probability of a question that does not ask for success


class ParsedAnswer(NamedTuple):
    """Values parsed from the answers of one timestep."""

    potential: float  # in [0, 1], or beyond where a recursion of the model's authors leads there
    success: float = UNKNOWN_SUCCESS  # probability that the task is done
    uncertainty: float = 0.0  # of the potential, in [0, 1]


class Question(ABC):
    """Queries about a timestep and the parser of their answers.

    Queries depend on frames only. Earlier answers matter only through the last scored frame.
    """

    predicts_success: bool = False  # whether answers contain a success prediction
    uses_previous_frame: bool = False  # whether queries include the last scored frame
    needs_goal: bool = False  # whether queries need a goal image
    history_capacity: int = 1  # minimum number of past frames that are kept; 1: the first frame

    @abstractmethod
    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        """Return the queries of a timestep, at least one."""

    @abstractmethod
    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        """Parse the answers of a timestep, all without failure. None: they cannot be parsed."""


def view_parts(title: str, multi_view_frame: MultiViewFrame, names: Sequence[str]) -> list[ContentPart]:
    """Return a title, followed by each view with the name of its camera."""
    parts: list[ContentPart] = [title]
    for name, frame in multi_view_frame.by_view(names).items():
        parts += [prompts.VIEW_LABEL.format(name=name), frame, "\n"]
    return parts


def make_query(
    context: EpisodeContext, image_parts: Sequence[ContentPart], question: str, *, max_tokens: int, **kwargs: object
) -> Query:
    """Return a query of the task, the goal images if any, other images and a question."""
    task_text = prompts.TASK_HEADER.format(instruction=context.instruction)
    goal_parts = [] if context.goal is None else view_parts(prompts.GOAL_HEADER, context.goal, context.view_names)
    parts: tuple[ContentPart, ...] = (task_text, *goal_parts, *image_parts, question)
    return Query(parts=parts, system=prompts.SYSTEM_PROMPT, max_tokens=max_tokens, **kwargs)  # type: ignore[arg-type]


def before_and_current_parts(header: str, before: MultiViewFrame, context: EpisodeContext) -> list[ContentPart]:
    """Return an earlier frame under a header, and the current frame."""
    names = context.view_names
    return [*view_parts(header, before, names), *view_parts(prompts.CURRENT_FRAME_HEADER, context.current, names)]


def interleave_images(
    template: str, instruction: str, images: Sequence[Frames], *, strip: bool = False
) -> list[ContentPart]:
    """Insert images uint8 [H, W, 3] and the instruction into a template; return text and images without empty texts.

    The template is split at its `<image>` first, so an instruction cannot add images. `strip`: whether white space
    around the pieces of text is removed.
    """
    segments = template.split("<image>")
    assert len(segments) == len(images) + 1
    texts = [segment.replace("{instruction}", instruction) for segment in segments]
    texts = [text.strip() for text in texts] if strip else texts
    parts: list[ContentPart] = [texts[0]]
    for image, text in zip(images, texts[1:], strict=True):
        parts += [image, text]
    return [part for part in parts if not isinstance(part, str) or part]


def camera_videos(
    context: EpisodeContext, max_frames: int, *, truncate: bool = False, num_frames: int = 0, start: int = 0
) -> list[list[Frames]]:
    """Return per visible camera up to `max_frames` images of the video so far, evenly spaced, the current one last.

    `truncate` and `start`: see `FrameHistory.sample_evenly`. `num_frames`: up to it, a shorter video repeats its last
    image.
    """
    sampled = context.history.sample_evenly(context.current, max_frames, truncate=truncate, start=start)
    sampled += sampled[-1:] * (num_frames - len(sampled))
    frames = [frame.by_view(context.view_names) for frame in sampled]
    return [[views[name] for views in frames if name in views] for name in context.current.by_view(context.view_names)]


def ordered_views(frame: MultiViewFrame, context: EpisodeContext, order: Sequence[str]) -> list[Frames]:
    """Return the visible views of a frame; those in `order` come first, in that order."""
    views = frame.by_view(context.view_names)
    return [views[name] for name in dict.fromkeys((*order, *context.view_names)) if name in views]


@dataclass(frozen=True)
class CameraQuestion(Question):
    """A question about one camera."""

    view_order: tuple[str, ...] = ()
    """The camera is the first of these views that is visible. Empty: the first visible view."""

    def camera_image(self, frame: MultiViewFrame, context: EpisodeContext) -> Frames:
        """Return the image of the camera."""
        return ordered_views(frame, context, self.view_order)[0]


@dataclass(frozen=True)
class ProgressQuestion(Question):
    """Progress in percent, from the first and the current frame."""

    question: str = prompts.PROGRESS_QUESTION
    max_tokens: int = 32

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        image_parts = before_and_current_parts(prompts.FIRST_FRAME_HEADER, context.first, context)
        return (make_query(context, image_parts, self.question, max_tokens=self.max_tokens),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        progress = parse.progress(answers[0].text or "")
        return None if progress is None else ParsedAnswer(progress)


@dataclass(frozen=True)
class CompletionQuestion(Question):
    """Whether the task is done: progress and success are both the answer or its probability."""

    predicts_success = True
    use_logprobs: bool = False

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        image_parts = before_and_current_parts(prompts.FIRST_FRAME_HEADER, context.first, context)
        choices = YES_NO_CHOICES if self.use_logprobs else ()
        return (make_query(context, image_parts, prompts.COMPLETION_QUESTION, max_tokens=8, choices=choices),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        probabilities = choice_probabilities(answers[0], YES_NO_CHOICES, parse.first_word)
        return None if probabilities is None else ParsedAnswer(probabilities["yes"], probabilities["yes"])


@dataclass(frozen=True)
class CloserQuestion(Question):
    """Whether the task is closer to done than at the last scored frame: a hop of +`CLOSER_HOP`, -`CLOSER_HOP` or 0."""

    uses_previous_frame = True
    use_logprobs: bool = False

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        image_parts = before_and_current_parts(prompts.PREVIOUS_FRAME_HEADER, context.previous, context)
        choices = COMPARISON_CHOICES if self.use_logprobs else ()
        return (make_query(context, image_parts, prompts.CLOSER_QUESTION, max_tokens=8, choices=choices),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        probabilities = choice_probabilities(answers[0], COMPARISON_CHOICES, parse.first_word)
        if probabilities is None:
            return None
        return ParsedAnswer(float(apply_hop(context.potential, CLOSER_HOP * (probabilities["B"] - probabilities["A"]))))


class VideoQuestion(Question):
    """A question about the video so far, of which it shows some frames."""

    history_capacity = 64

    def __init__(self, selection: FrameSelection | None = None) -> None:
        """`selection`: which frames it shows; None: evenly spaced ones."""
        self.selection = selection or EvenFrames()
        self.uses_previous_frame = self.selection.uses_previous_frame

    @abstractmethod
    def with_selection(self, selection: FrameSelection) -> VideoQuestion:
        """Return the same question about other frames."""

    def history_parts(self, context: EpisodeContext) -> list[ContentPart]:
        """Return up to `MAX_HISTORY_FRAMES` timesteps of the video so far, the current one last."""
        parts: list[ContentPart] = [prompts.HISTORY_HEADER]
        for number, frame in enumerate(self.selection.select(context, MAX_HISTORY_FRAMES), start=1):
            parts += view_parts(prompts.FRAME_LABEL.format(number=number), frame, context.view_names)
        return parts


class RubricQuestion(VideoQuestion):
    """Grade of the video so far, from 1 to 5 (RoboReward): progress is (grade - 1) / 4, success is a 5."""

    predicts_success = True

    def __init__(self, *, use_logprobs: bool = False, selection: FrameSelection | None = None) -> None:
        super().__init__(selection)
        self.use_logprobs = use_logprobs

    def with_selection(self, selection: FrameSelection) -> RubricQuestion:
        return RubricQuestion(use_logprobs=self.use_logprobs, selection=selection)

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        question = prompts.RUBRIC_CHOICE_QUESTION if self.use_logprobs else prompts.RUBRIC_QUESTION
        choices = GRADE_CHOICES if self.use_logprobs else ()
        return (make_query(context, self.history_parts(context), question, max_tokens=32, choices=choices),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        return grade_to_answer(choice_probabilities(answers[0], GRADE_CHOICES, parse.answer))


class TrueLogprobQuestion(VideoQuestion):
    """log P("True") of the video so far, scaled by fixed bounds (TOPReward, arXiv 2602.19313)."""

    def with_selection(self, selection: FrameSelection) -> TrueLogprobQuestion:
        return TrueLogprobQuestion(selection)

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        question = prompts.TRUE_QUESTION.format(instruction=context.instruction)
        return (Query(parts=(*self.history_parts(context), question), choices=("True",)),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        assert answers[0].logprobs is not None
        return ParsedAnswer(scale_logprob(answers[0].logprobs["True"]))


def scale_logprob(logprob: float) -> float:
    """Return the potential of log P("True"), in nats."""
    return min(max((logprob - MIN_LOGPROB) / (MAX_LOGPROB - MIN_LOGPROB), 0.0), 1.0)


YES_NO_CHOICES = ("yes", "no")
COMPARISON_CHOICES = ("A", "B", "C")
GRADE_CHOICES = ("1", "2", "3", "4", "5")


ChoiceParser = Callable[[str, Sequence[str]], str | None]  # function that finds one of some choices in a text


def choice_probabilities(answer: Answer, choices: Sequence[str], parser: ChoiceParser) -> Mapping[str, float] | None:
    """Return choice -> probability: from log-probabilities, or 1 for the choice in the text. None: no choice."""
    if answer.logprobs is not None:
        return parse.normalize_logprobs(answer.logprobs)
    selected = parser(answer.text or "", choices)
    return None if selected is None else {choice: float(choice == selected) for choice in choices}


def mean_head_output(answers: Sequence[Answer], name: str) -> float:
    """Return the mean of a head's output over answers that all have it."""
    outputs = [answer.head_outputs[name] for answer in answers if answer.head_outputs is not None]
    assert len(outputs) == len(answers)
    return sum(outputs) / len(outputs)


def grade_to_answer(probabilities: Mapping[str, float] | None) -> ParsedAnswer | None:
    """Return the expected grade as potential, and the probability of the best grade as success."""
    if probabilities is None:
        return None
    return ParsedAnswer(sum(p * (int(grade) - 1) / 4 for grade, p in probabilities.items()), probabilities["5"])


TEXT_QUESTIONS: Mapping[str, Question] = {
    "progress": ProgressQuestion(),
    "remaining": ProgressQuestion(question=prompts.REMAINING_QUESTION, max_tokens=256),
    "completion": CompletionQuestion(),
    "closer": CloserQuestion(),
    "rubric": RubricQuestion(),
}
"""Questions with generated text as answer."""
LOGPROB_QUESTIONS: Mapping[str, Question] = {
    "completion": CompletionQuestion(use_logprobs=True),
    "closer": CloserQuestion(use_logprobs=True),
    "rubric": RubricQuestion(use_logprobs=True),
    "true_logprob": TrueLogprobQuestion(),
}
"""Questions with log-probabilities of a few words as answer."""
