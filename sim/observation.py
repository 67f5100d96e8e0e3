"""The state observation a policy gets: positions of tool, cubes, knob and tray, as seen from the tool."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sim.state import SceneState

OBSERVATION_SIZE = 29


def observe(state: SceneState) -> npt.NDArray[np.float32]:
    """float32 [N, 29], metres: tool 3, commanded - tool 3, opening 1, named cube 3, other cube 3, drawer 1, knob 3,
    and from the tool: named cube 3, other cube 3, knob 3; named cube from the tray 3."""
    tool, cube, other = state.tool, state.target_cube, state.other_cube
    columns = (
        tool,
        state.commanded - tool,
        state.opening[:, None],
        cube,
        other,
        state.drawer[:, None],
        state.knob,
        cube - tool,
        other - tool,
        state.knob - tool,
        cube - state.tray,
    )
    return np.concatenate(columns, axis=1).astype(np.float32)
