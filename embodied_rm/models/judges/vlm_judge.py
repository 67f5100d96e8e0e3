"""`VlmJudge`: a vision-language model behind the contract of a reward model, asked one question of every moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Reference, Sight
from embodied_rm.models.judges.chat import UNPARSABLE, Answer, Chat
from embodied_rm.models.judges.film import Film, Picture
from embodied_rm.models.judges.memory import JudgeMemory, Moment
from embodied_rm.models.judges.questions import Question, Said
from embodied_rm.models.witness import there
from embodied_rm.types import Progress, Views

UNKNOWN_STEP = -1


class Verdict(NamedTuple):
    """What became of one moment."""

    moment: Moment
    valid: bool


class VlmJudge:
    """A `RewardModel` that asks. It knows no steps; a moment without an answer is not valid and carries its potential.

    A reference is left aside; a goal picture is shown where the question has a place for it.
    """

    def __init__(self, chat: Chat, question: Question, sight: Sight | None = None) -> None:
        self.chat, self.question, self._sight = chat, question, sight or Sight()
        self.tells_success = question.tells_success
        self.faults: Counter[str] = Counter()
        """How many moments were left unscored, by why; see `chat.FAULTS`."""

    @property
    def sight(self) -> Sight:
        """Any views at their own size, unless it was told otherwise."""
        return self._sight

    def begin(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Reference | None = None,
    ) -> JudgeMemory:
        """Open N episodes at their first frames. Nothing is asked yet.

        Raises `UserError` when lengths differ.
        """
        if len(instructions) != len(views) or (goal is not None and len(goal) != len(views)):
            raise UserError(
                f"begin needs one instruction (and goal) an environment: got views of {len(views)}, "
                f"{len(instructions)} instructions" + ("" if goal is None else f", {len(goal)} goals")
            )
        first, names = pictures(views), tuple(views.names)
        aims = [None] * len(first) if goal is None else aligned(goal, names)
        rows = zip(map(plain, instructions), first, aims, strict=True)
        film = Film(room=self.question.keeps)
        return JudgeMemory(
            tuple(
                Moment(
                    instruction=plain(sentence), names=names, film=film, first=seen, previous=seen, now=seen, goal=aim
                )
                for sentence, seen, aim in rows
            )
        )

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, JudgeMemory]:
        """Judge one new frame set a row; all rows are asked about together.

        Raises `UserError` when lengths or views differ, and for what no query could be answered with.
        """
        assert isinstance(memory, JudgeMemory)
        if len(views) != len(memory):
            raise UserError(f"advance needs views of {len(memory)} environments, got {len(views)}")
        moments = [row.at(now) for row, now in zip(memory.rows, self._seen(memory, views), strict=True)]
        verdicts = self._judged(moments, showing(views))
        return told(verdicts), JudgeMemory(tuple(verdict.moment for verdict in verdicts))

    def follow(self, memory: Memory, views: Views) -> tuple[Progress, JudgeMemory]:
        """What `advance` says of the T frames of one episode, one after the other, all asked about together.

        Only what follows a moment that stayed unscored is asked anew, where the question looks back at it.
        """
        assert isinstance(memory, JudgeMemory) and len(memory) == 1
        (row,) = memory.rows
        shows = showing(views)
        moments = []
        for now in self._seen(memory, views):
            row = row.at(now)
            moments.append(row)
            row = replace(row, previous=row.now)
        asked = iter(self._ask([moment for moment, seen in zip(moments, shows, strict=True) if seen]))
        (last,), verdicts = memory.rows, []
        for moment, seen in zip(moments, shows, strict=True):
            previous = last.previous if last.first.there.any() else moment.previous
            present = replace(moment, previous=previous, value=last.value, success=last.success)
            answers = next(asked) if seen else ()
            if seen and self.question.looks_back and previous is not moment.previous:
                (answers,) = self._ask([present])
            verdicts.append(self._read(present, answers))
            last = verdicts[-1].moment
        return told(verdicts), JudgeMemory((last,))

    def _seen(self, memory: JudgeMemory, views: Views) -> list[Picture]:
        for row in memory.rows[:1]:
            if row.names != tuple(views.names):
                began, got = (", ".join(names) for names in (row.names, views.names))
                raise UserError(f"the episodes began with the views {began}, got {got}")
        return pictures(views)

    def _judged(self, moments: Sequence[Moment], shows: Sequence[bool]) -> list[Verdict]:
        asked = iter(self._ask([moment for moment, seen in zip(moments, shows, strict=True) if seen]))
        return [self._read(moment, next(asked) if seen else ()) for moment, seen in zip(moments, shows, strict=True)]

    def _ask(self, moments: Sequence[Moment]) -> list[Sequence[Answer]]:
        """The answers about each moment; all queries of all moments go out together."""
        if not moments:
            return []
        queries = [self.question.ask(moment) for moment in moments]
        answers = iter(self.chat.ask([query for some in queries for query in some]))
        return [[next(answers) for _ in some] for some in queries]

    def _read(self, moment: Moment, answers: Sequence[Answer]) -> Verdict:
        """What the answers make of a moment; none: it shows nothing."""
        if not answers:
            return Verdict(moment, False)
        fault = next((answer.fault for answer in answers if answer.fault is not None), None)
        said: Said | None = None if fault else self.question.read(answers, moment)
        if said is None:
            self.faults[fault or UNPARSABLE] += 1
            return Verdict(moment, False)
        return Verdict(moment.scored(*said), True)


def plain(sentence: str) -> str:
    """A sentence that names no token of any model, which are written in angle brackets."""
    return sentence.translate(str.maketrans("<>", "()"))


def showing(views: Views) -> list[bool]:
    """Of each environment, whether any of its views shows anything."""
    return [bool(row.any()) for row in there(views)]


def pictures(views: Views) -> list[Picture]:
    """One an environment."""
    frames = views.frames if isinstance(views.frames, np.ndarray) else views.frames.cpu().numpy()
    return [Picture(*each) for each in zip(frames, there(views), strict=True)]


def aligned(goal: Views, names: Sequence[str]) -> list[Picture | None]:
    """The goal pictures of each environment as pictures of the views `names`, of which it need not show all. Raises
    `UserError` for one that shows none."""
    shown, missing = pictures(goal), np.zeros_like(pictures(goal)[0].frames[0])
    found: list[Picture | None] = []
    for picture in shown:
        known = {name: frame for name, frame in picture.of(goal.names).items() if name in names}
        if not known:
            raise UserError(f"a goal picture shows none of the views {', '.join(names)}")
        frames = np.stack([known.get(name, missing) for name in names])
        found.append(Picture(frames, np.array([name in known for name in names])))
    return found


def told(verdicts: Sequence[Verdict]) -> Progress:
    """The verdicts as a judgement. A judge gives no account of how wrong it may be."""
    moments = [verdict.moment for verdict in verdicts]
    return Progress(
        value=np.array([moment.value for moment in moments], np.float32),
        valid=np.array([verdict.valid for verdict in verdicts], bool),
        stage=np.full(len(moments), UNKNOWN_STEP, np.int64),
        success=np.array([moment.success for moment in moments], np.float32),
        spread=np.zeros(len(moments), np.float32),
    )
