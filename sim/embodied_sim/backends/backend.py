"""What the environments need of a physics engine: N worlds of one model, live arrays, one call a control step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import mujoco
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


VISUAL_FIELDS = ("geom_rgba", "cam_pos", "cam_quat", "cam_fovy", "light_dir", "light_diffuse")
"""Model fields that can differ between worlds and that only images show."""
VARIABLE_FIELDS = (*VISUAL_FIELDS, "geom_friction", "body_mass", "body_inertia")
"""Model fields that can differ between worlds. Whoever changes a mass changes the inertia in proportion."""

MAX_SPEED = 1e4
"""m/s or rad/s. MuJoCo itself complains only beyond 1e10, when the world has long been nonsense."""


class PhysicsBackend(Protocol):
    """N independent worlds of one model. Every array is live: index it, do not keep a copy across a call.

    Worlds never touch each other: what happens in one (divergence included) changes no bit of another, and no
    result depends on the number of threads.
    """

    model: mujoco.MjModel
    """The host model. Read only: the worlds run on a copy."""
    num_worlds: int
    device: str
    """Where the worlds are: "cpu" or "cuda"."""

    qpos: Array
    """[N, nq], writable."""
    qvel: Array
    """[N, nv], writable."""
    ctrl: Array
    """[N, nu], writable: what the next `step` applies."""
    mocap_pos: Array
    """[N, nmocap, 3] metres, writable."""
    mocap_quat: Array
    """[N, nmocap, 4] wxyz, writable."""
    time: Array
    """[N] seconds since the last `set_state`."""

    site_xpos: Array
    """[N, nsite, 3] metres, read only, current after every call; likewise the rest."""
    site_xmat: Array
    """[N, nsite, 9]."""
    xpos: Array
    """[N, nbody, 3]."""
    xquat: Array
    """[N, nbody, 4] wxyz."""
    xanchor: Array
    """[N, njnt, 3]."""
    xaxis: Array
    """[N, njnt, 3]."""

    def read_field(self, name: str) -> npt.NDArray[np.generic]:
        """Any other position- or velocity-dependent MjData field (`cvel`, `sensordata`, ...): live, [N, ...]."""
        ...

    def expand_field(self, name: str) -> Array:
        """The model field `name` (as in MjModel), one of `VARIABLE`, with a value for every world: live, writable,
        [N, ...]. Until it is written every world has the model's own value; what it changes shows from the next
        `set_state` or `step` on, and in images."""
        ...

    @property
    def expanded_fields(self) -> Mapping[str, Array]:
        """The fields asked for by `vary` so far."""
        ...

    def step(self, substeps: int) -> BoolArray:
        """Advance every world by `substeps` time steps under `ctrl`; derived fields are current afterwards.

        Returns bool [N]: the worlds that have diverged. A world is reported by the very call in which it diverged,
        goes back to the state in which the last good call left it (so no array ever shows a non-finite number),
        and stands still, still reported, until `set_state`.
        """
        ...

    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        """Put the worlds `rows` (int [n], each once, any order) at `qpos` [n, nq] and `qvel` [n, nv].

        Their time, controls, warm start and activations are zeroed, derived fields made current and the mark of
        divergence cleared. Mocap poses stay as written: write them first.
        """
        ...

    def divergence_reasons(self) -> dict[int, str]:
        """World -> why it stands still, e.g. "QVEL, QACC not finite, or huge"."""
        ...

    def snapshot(self) -> dict[str, npt.NDArray[np.float64]]:
        """Everything that the next steps depend on: arrays [N, ...] by name, copies; but not
        that a world stands still."""
        ...

    def restore(self, snapshot: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Bring every world back to what `snapshot` of such a backend gave."""
        ...

    def close(self) -> None:
        """Free the worlds. No array may be read afterwards. Twice is once."""
        ...
