"""What a vision-language model can be asked about a moment, and what its answer makes of the potential."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from embodied_rm.fusion import apply_hop
from embodied_rm.models.judges import parse, prompts
from embodied_rm.models.judges.chat import Answer, Part, Query
from embodied_rm.models.judges.film import Picture
from embodied_rm.models.judges.memory import Moment
from embodied_rm.types import Frames

CLOSER_HOP = 0.1
"""Share of what is left (or was gained) that "closer" (or "farther") is worth."""
MOMENTS = 8
"""Most moments of a film that are shown at once."""
LEAST_LOGPROB, MOST_LOGPROB = -25.0, -5.0
"""log P("True") that is no progress, and that is all of it: fixed bounds, for an episode's own need its end (LRM)."""
NOT_TOLD = math.nan
"""Success of a question that does not tell."""


class Said(NamedTuple):
    """What an answer means."""

    value: float
    """The potential, in [0, 1]."""
    success: float = NOT_TOLD
    """Probability that the task is done."""


class Question(Protocol):
    """What is asked of a moment, and how the answers are read. Asking depends on what was shown, never on answers but
    for which frame was scored last."""

    @property
    def tells_success(self) -> bool:
        """Whether answers say if the task is done."""
        ...

    @property
    def looks_back(self) -> bool:
        """Whether it shows the frame that was scored last."""
        ...

    @property
    def keeps(self) -> int:
        """Frames of the past that it wants, at least 1: the first."""
        ...

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        """What is asked; at least one query."""
        ...

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        """What the answers, none of which has a fault, make of the moment; None: nothing, they cannot be parsed."""
        ...


def shown(title: str, picture: Picture, names: Sequence[str]) -> list[Part]:
    """A moment's views under a title, each with the name of its camera."""
    parts: list[Part] = [title]
    for name, frame in picture.of(names).items():
        parts += [prompts.VIEW.format(name=name), frame, "\n"]
    return parts


def asked(moment: Moment, pictures: Sequence[Part], question: str, *, max_tokens: int, **kwargs: object) -> Query:
    """A query of the task, pictures and a question."""
    task = prompts.TASK.format(instruction=moment.instruction)
    goal = [] if moment.goal is None else shown(prompts.GOAL, moment.goal, moment.names)
    parts: tuple[Part, ...] = (task, *goal, *pictures, question)
    return Query(parts=parts, system=prompts.SYSTEM, max_tokens=max_tokens, **kwargs)  # type: ignore[arg-type]


def before_and_now(moment: Moment) -> list[Part]:
    """The first frame and the present one."""
    names = moment.names
    return [*shown(prompts.BEFORE, moment.first, names), *shown(prompts.NOW, moment.now, names)]


def filmed(moment: Moment, most: int = MOMENTS) -> list[Part]:
    """Up to `most` moments of the film so far, the present one last."""
    parts: list[Part] = [prompts.FILM]
    for number, picture in enumerate(moment.film.evenly(moment.now, most), start=1):
        parts += shown(prompts.MOMENT.format(number=number), picture, moment.names)
    return parts


def interleaved(template: str, instruction: str, pictures: Sequence[Frames], *, stripped: bool = False) -> list[Part]:
    """A prompt in which each `<image>` is a picture and `{instruction}` the sentence; `stripped` of the white space
    around its pieces. No sentence can bring pictures of its own."""
    pieces = template.split("<image>")
    assert len(pieces) == len(pictures) + 1
    texts = [piece.replace("{instruction}", instruction) for piece in pieces]
    texts = [text.strip() for text in texts] if stripped else texts
    parts: list[Part] = [texts[0]]
    for picture, text in zip(pictures, texts[1:], strict=True):
        parts += [picture, text]
    return [part for part in parts if not isinstance(part, str) or part]


def cameras(picture: Picture, moment: Moment, order: Sequence[str]) -> list[Frames]:
    """The views of a moment that are there, those of `order` first and in it."""
    known = picture.of(moment.names)
    return [known[name] for name in dict.fromkeys((*order, *moment.names)) if name in known]


@dataclass(frozen=True)
class Share:
    """How much is done, in percent, from the first frame and the present one."""

    question: str = prompts.PROGRESS
    max_tokens: int = 32
    tells_success: bool = False
    looks_back: bool = False
    keeps: int = 1

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        return (asked(moment, before_and_now(moment), self.question, max_tokens=self.max_tokens),)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        value = parse.progress(answers[0].text or "")
        return None if value is None else Said(value)


@dataclass(frozen=True)
class Completion:
    """Whether it is done: progress and success are one, the verdict or its probability."""

    by_logprobs: bool = False
    tells_success: bool = True
    looks_back: bool = False
    keeps: int = 1

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        choices = YES_NO if self.by_logprobs else ()
        return (asked(moment, before_and_now(moment), prompts.COMPLETION, max_tokens=8, choices=choices),)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        chance = chances(answers[0], YES_NO, parse.first_word)
        return None if chance is None else Said(chance["yes"], chance["yes"])


@dataclass(frozen=True)
class Closer:
    """Whether it is closer than at the frame last scored: a hop of `CLOSER_HOP` forwards, backwards, or none."""

    by_logprobs: bool = False
    tells_success: bool = False
    looks_back: bool = True
    keeps: int = 1

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        names = moment.names
        pictures = [*shown(prompts.PREVIOUS, moment.previous, names), *shown(prompts.NOW, moment.now, names)]
        choices = LETTERS if self.by_logprobs else ()
        return (asked(moment, pictures, prompts.CLOSER, max_tokens=8, choices=choices),)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        chance = chances(answers[0], LETTERS, parse.first_word)
        if chance is None:
            return None
        return Said(float(apply_hop(moment.value, CLOSER_HOP * (chance["B"] - chance["A"]))))


@dataclass(frozen=True)
class Rubric:
    """How far the film so far got, on a scale of 1 to 5 (RoboReward): (grade - 1) / 4; done is a 5."""

    by_logprobs: bool = False
    tells_success: bool = True
    looks_back: bool = False
    keeps: int = 64

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        question = prompts.RUBRIC_CHOICE if self.by_logprobs else prompts.RUBRIC
        choices = GRADES if self.by_logprobs else ()
        return (asked(moment, filmed(moment), question, max_tokens=32, choices=choices),)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        return graded(chances(answers[0], GRADES, parse.answer))


@dataclass(frozen=True)
class Truth:
    """How likely "True" is said of the film so far (TOPReward, arXiv 2602.19313), between fixed bounds."""

    tells_success: bool = False
    looks_back: bool = False
    keeps: int = 64

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        question = prompts.TRUE.format(instruction=moment.instruction)
        return (Query(parts=(*filmed(moment), question), choices=("True",)),)

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        assert answers[0].logprobs is not None
        share = (answers[0].logprobs["True"] - LEAST_LOGPROB) / (MOST_LOGPROB - LEAST_LOGPROB)
        return Said(min(max(share, 0.0), 1.0))


YES_NO = ("yes", "no")
LETTERS = ("A", "B", "C")
GRADES = ("1", "2", "3", "4", "5")


class Parser(Protocol):
    """Finds one of some choices in a text."""

    def __call__(self, text: str, among: Sequence[str]) -> str | None: ...


def chances(answer: Answer, among: Sequence[str], parser: Parser) -> Mapping[str, float] | None:
    """Probability of each choice: by its log-probability, or 1 for the one that was written. None: none was."""
    if answer.logprobs is not None:
        return parse.probabilities(answer.logprobs)
    said = parser(answer.text or "", among)
    return None if said is None else {choice: float(choice == said) for choice in among}


def graded(chance: Mapping[str, float] | None) -> Said | None:
    """The expected grade as a potential, and how likely the best one is."""
    if chance is None:
        return None
    return Said(sum(p * (int(grade) - 1) / 4 for grade, p in chance.items()), chance["5"])


QUESTIONS: Mapping[str, Question] = {
    "progress": Share(),
    "remaining": Share(question=prompts.REMAINING, max_tokens=256),
    "completion": Completion(),
    "closer": Closer(),
    "rubric": Rubric(),
}
"""Those that are answered in writing."""
BY_LOGPROBS: Mapping[str, Question] = {
    "completion": Completion(by_logprobs=True),
    "closer": Closer(by_logprobs=True),
    "rubric": Rubric(by_logprobs=True),
    "true": Truth(),
}
"""Those that are answered by the log-probabilities of a few words."""
