"""Scoring of whole clips, frame by frame, without sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from embodied_rm.serve.request_queue import RESET, STEP, WorkItem
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import OutputColumns, initial_outputs
from embodied_rm.serve.state_store import StateRow
from embodied_rm.types import Views


@dataclass(frozen=True, kw_only=True)
class ClipBatch:
    """N clips of equal length and size."""

    client_id: str
    """For round-robin scheduling."""
    instructions: Sequence[str]
    view_names: tuple[str, ...]
    frames: npt.NDArray[np.uint8]
    """[N, T, V, H, W, 3]."""

    def __len__(self) -> int:
        return len(self.instructions)


async def score_clips(service: RewardService, clips: ClipBatch, deadline: float) -> OutputColumns:
    """Score every frame from its past alone. Returns arrays [N, T]. Raises `RequestError`."""
    result = await service.engine.submit(_make_work_item(clips, 0, deadline, ()))
    outputs = [initial_outputs(len(clips))]
    for t in range(1, clips.frames.shape[1]):
        state, first_row = result.state_batch.state, result.first_row
        result = await service.engine.submit(
            _make_work_item(clips, t, deadline, [(state, first_row + row) for row in range(len(clips))])
        )
        assert result.output is not None
        outputs.append(service.to_output_columns(result.output))
    return {name: np.stack([columns[name] for columns in outputs], axis=1) for name in outputs[0]}


def _make_work_item(clips: ClipBatch, t: int, deadline: float, state_rows: Sequence[StateRow]) -> WorkItem:
    return WorkItem(
        client_id=clips.client_id,
        kind=STEP if t else RESET,
        num_rows=len(clips),
        views=Views(names=clips.view_names, frames=clips.frames[:, t]),
        instructions=clips.instructions,
        state_rows=state_rows,
        deadline=deadline,
    )
