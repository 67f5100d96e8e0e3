"""Large Reward Models: three LoRA heads over one Qwen3-VL, whose answers are averaged.

The head that compares looks at the frame last scored, the one that says how far it is at the first frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodied_rm.models.judges import parse
from embodied_rm.models.judges import released_prompts as prompts
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.film import Picture
from embodied_rm.models.judges.local import LocalChat
from embodied_rm.models.judges.memory import Moment
from embodied_rm.models.judges.questions import Said, cameras, interleaved
from embodied_rm.models.released.adapters import Adapted, read_adapter
from embodied_rm.types import Frames

HEADS = ("contrastive", "completion", "progress")
CLOSER = {"ImageA": -1.0, "ImageB": 1.0}
COMPLETED = re.compile(r'"task_completed"\s*:\s*"(yes|no)"', re.IGNORECASE)


class HeadsChat(LocalChat):
    """A `Chat` whose answers are given by the head that a query names. `folder` has a folder a head, `base` the model
    that they are for."""

    def __init__(self, folder: Path, base: Path, **kwargs: Any) -> None:
        """Raises `CheckpointError` naming the file that is not as released."""
        super().__init__(base, **kwargs)
        self._adapted = Adapted(self.model, {head: read_adapter(folder / head) for head in HEADS})

    def _answered(self, queries: Sequence[Query]) -> list[Answer]:
        with self._adapted.using(queries[0].head):
            return super()._answered(queries)


@dataclass(frozen=True)
class Three:
    """((comparison + 1) / 2 + progress + completion) / 3, of one camera; done is what the second head says."""

    order: tuple[str, ...] = ()
    """The view it is shown is the first of these that is there; none: the first."""
    tells_success: bool = True
    looks_back: bool = True
    keeps: int = 1

    def ask(self, moment: Moment) -> tuple[Query, ...]:
        task, now, first = moment.instruction, self._seen(moment.now, moment), self._seen(moment.first, moment)
        compared = interleaved(prompts.LRM_CONTRASTIVE, task, [self._seen(moment.previous, moment), now])
        done = interleaved(prompts.LRM_COMPLETION, task, [now], stripped=True)
        if moment.goal is None:
            share = interleaved(prompts.LRM_PROGRESS, task, [first, now])
        else:
            share = interleaved(prompts.LRM_PROGRESS_TO_GOAL, task, [self._seen(moment.goal, moment), first, now])
        return (
            Query(parts=tuple(compared), head="contrastive", max_tokens=512),
            Query(parts=tuple(done), head="completion", max_tokens=128),
            Query(parts=tuple(share), head="progress", max_tokens=128),
        )

    def read(self, answers: Sequence[Answer], moment: Moment) -> Said | None:
        compared, done, share = (answer.text or "" for answer in answers)
        closer = CLOSER.get(str(parse.field(compared, "more_complete_image")))
        completed = COMPLETED.findall(done)
        progress = unit(parse.field(share, "completion_progress"))
        if closer is None or not completed or progress is None:
            return None
        success = float(completed[-1].lower() == "yes")
        return Said(((closer + 1) / 2 + progress + success) / 3, success)

    def _seen(self, picture: Picture, moment: Moment) -> Frames:
        return cameras(picture, moment, self.order)[0]


def unit(value: object) -> float | None:
    """A number in [0, 1], also one that is written as text; None for anything else."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None
