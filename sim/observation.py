"""The state observation a policy gets: where things are, absolutely and as seen from the tool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sim.control import FloatArray
from sim.state import SceneState

PROPRIO = 7
"""The first columns, which a robot knows of itself: tool, commanded - tool, opening."""


def observe(state: SceneState, watched: Sequence[str], extra: Sequence[FloatArray]) -> npt.NDArray[np.float32]:
    """float32 [N, D], metres: tool 3, commanded - tool 3, opening 1, objects by role 3 each, joints 1 each, watched
    points 3 each; objects and watched points from the tool, 3 each; and what the task adds."""
    objects = [state.object(role) for role in range(state.objects.shape[1])]
    points = [state.points[name] for name in watched]
    columns = (
        state.tool,
        state.commanded - state.tool,
        state.opening[:, None],
        *objects,
        *(joint[:, None] for joint in state.joints.values()),
        *points,
        *(place - state.tool for place in (*objects, *points)),
        *extra,
    )
    return np.concatenate(columns, axis=1).astype(np.float32)
