"""Whole films, judged frame after frame, beside the episodes that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embodied_rm.serve.queue import ADVANCE, BEGIN, Work
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import Columns, nothing_yet
from embodied_rm.serve.slabs import Row
from embodied_rm.types import Views


@dataclass(frozen=True, kw_only=True)
class Films:
    """N films of one length and size."""

    client: str
    """Whose: clients take turns."""
    instructions: Sequence[str]
    names: tuple[str, ...]
    frames: npt.NDArray[np.uint8]
    """[N, T, V, H, W, 3]."""

    def __len__(self) -> int:
        return len(self.instructions)


async def judged(service: RewardService, films: Films, expires: float) -> Columns:
    """What is said of every frame, [N, T] each, from the past of that frame alone. Raises `RefusalError`."""
    outcome = await service.engine.put(_work(films, 0, expires, ()))
    said = [nothing_yet(len(films))]
    for t in range(1, films.frames.shape[1]):
        memory, start = outcome.slab.memory, outcome.start
        outcome = await service.engine.put(
            _work(films, t, expires, [(memory, start + row) for row in range(len(films))])
        )
        assert outcome.progress is not None
        said.append(service.said(outcome.progress))
    return {name: np.stack([columns[name] for columns in said], axis=1) for name in said[0]}


def _work(films: Films, t: int, expires: float, places: Sequence[Row]) -> Work:
    return Work(
        client=films.client,
        kind=ADVANCE if t else BEGIN,
        rows=len(films),
        views=Views(names=films.names, frames=films.frames[:, t]),
        instructions=films.instructions,
        places=places,
        expires=expires,
        outcome=asyncio.get_running_loop().create_future(),
    )
