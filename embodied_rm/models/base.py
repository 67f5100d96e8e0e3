"""The one contract that matters: begin at reset, advance once per new frame set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from embodied_rm.types import Progress, Views

Rows = npt.NDArray[np.int64]


class Memory(Protocol):
    """What the past contributes, one row an environment. Opaque to callers; never shared between rows."""

    def __len__(self) -> int: ...

    def take(self, rows: Rows) -> Memory:
        """A copy of the given rows, in that order."""
        ...

    def put(self, rows: Rows, other: Memory) -> Memory:
        """This memory with `rows` replaced by the rows of `other`."""
        ...

    def potential(self) -> npt.NDArray[np.float32]:
        """float32 [N]: the carried fused potential, the Phi of the state last scored."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores views of N environments against N instructions, causally. Rows are independent of each other."""

    def begin(self, views: Views, instructions: Sequence[str], goal: Views | None = None) -> Memory:
        """Open N episodes at their first frames. `potential()` of the result is Phi of the first state: 0.

        Raises `UserError` when the lengths differ or a view name is unknown to the model.
        """
        ...

    def advance(self, memory: Memory, views: Views) -> tuple[Progress, Memory]:
        """Judge one new frame set per row. Pure: the given memory is not changed; no future frame is seen."""
        ...
