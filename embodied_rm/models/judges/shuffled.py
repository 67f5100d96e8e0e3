"""`ShuffledJudge`: moments of a whole film, out of order, so that a judge cannot read progress off their order.

Source: GVL (Ma et al., arXiv 2411.04549). It needs the end of an episode before it says anything: for scoring and
evaluation only, nobody can be paid by it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.models.base import Memory, Reference, Sight
from embodied_rm.models.judges import prompts
from embodied_rm.models.judges.chat import UNPARSABLE, Chat, Part, Query
from embodied_rm.models.judges.film import Film, Picture
from embodied_rm.models.judges.questions import shown
from embodied_rm.models.judges.vlm_judge import UNKNOWN_STEP, pictures, plain
from embodied_rm.types import IntArray, Progress, Views

MOMENTS = 16
"""Most moments that are asked about; between two of them progress is interpolated."""
SAID = re.compile(r"moment\s+(\d+)\s*:?\s*<progress>\s*(\d+(?:\.\d+)?)\s*%?\s*</progress>", re.IGNORECASE)
OFFLINE = (
    "question=shuffled looks at the whole film before it says anything: it can score and be evaluated, but nobody can "
    "be paid by it, and an audit of what is paid does not apply"
)


class ShuffledJudge:
    """Judges films when they are whole. Its first moment is shown first and as what it is; the others in an order of
    their own for every film length, always the same."""

    tells_success = False

    def __init__(self, chat: Chat, sight: Sight | None = None) -> None:
        self.chat, self._sight = chat, sight or Sight()
        self.faults: Counter[str] = Counter()
        """How many frames were left unscored, by why; see `chat.FAULTS`."""

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
    ) -> Memory:
        """Raises `UserError`: there is no present to judge."""
        raise UserError(OFFLINE)

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, Memory]:
        """Raises `UserError`: there is no present to judge."""
        raise UserError(OFFLINE)

    def judge_film(self, instruction: str, blocks: Iterable[Views]) -> Progress:
        """The judgement of every frame of a film that comes in blocks, its rows one after the other."""
        film, showing = Film(room=4 * MOMENTS), []
        names: tuple[str, ...] = ()
        last: Picture | None = None
        for views in blocks:
            names = views.names
            for picture in pictures(views):
                showing.append(bool(picture.there.any()))
                film = film if last is None or not showing[-1] else film.added(last)
                last = picture if showing[-1] or last is None else last
        assert last is not None
        seen = np.flatnonzero(showing)
        moments = film.evenly(last, MOMENTS)
        at = np.round(np.linspace(0, max(len(seen) - 1, 0), len(moments))).astype(np.int64)
        return self._judged(plain(instruction), names, moments, seen[at] if len(seen) else at, len(showing))

    def _judged(
        self, instruction: str, names: Sequence[str], moments: Sequence[Picture], at: IntArray, length: int
    ) -> Progress:
        if len(moments) < 2:
            return curve(np.zeros(1, np.int64), np.zeros(1), length, valid=length == 1)
        order = np.random.default_rng(len(moments)).permutation(np.arange(1, len(moments)))
        parts: list[Part] = [prompts.TASK.format(instruction=instruction), prompts.SHUFFLED, "\n"]
        for number, row in enumerate((0, *order)):
            title = prompts.MOMENT.format(number=number) if number else prompts.BEFORE
            parts += shown(title, moments[int(row)], names)
        query = Query(parts=tuple(parts), system=prompts.SYSTEM, max_tokens=24 * len(moments))
        (answer,) = self.chat.ask([query])
        said = {int(number): float(percent) / 100 for number, percent in SAID.findall(answer.text or "")}
        known = {int(row): said[n] for n, row in enumerate(order, start=1) if 0 <= said.get(n, -1.0) <= 1}
        if not known:
            self.faults[answer.fault or UNPARSABLE] += length - 1
            return curve(np.zeros(1, np.int64), np.zeros(1), length, valid=False)
        rows = np.array([0, *sorted(known)])
        return curve(at[rows], np.array([known.get(int(row), 0.0) for row in rows]), length, valid=True)


def curve(at: IntArray, values: np.ndarray, length: int, *, valid: bool) -> Progress:
    """Progress of every frame from that of some, a straight line between two and the last one's behind it. Not `valid`:
    nothing but the first frame was scored."""
    scored = np.full(length, valid)
    scored[0] = True
    success = np.full(length, np.nan, np.float32)
    success[0] = 0
    return Progress(
        value=np.interp(np.arange(length), at, values).astype(np.float32),
        valid=scored,
        stage=np.full(length, UNKNOWN_STEP, np.int64),
        success=success,
        spread=np.zeros(length, np.float32),
    )
