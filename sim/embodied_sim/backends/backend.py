"""Interface of physics engines: N worlds of one model, live arrays, one call per control step."""

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
"""Model fields that can differ between worlds and affect images only."""
VARIABLE_FIELDS = (*VISUAL_FIELDS, "geom_friction", "body_mass", "body_inertia")
"""Model fields that can differ between worlds. Scale the inertia together with the mass."""

MAX_SPEED = 1e4
"""Speed at which a world counts as diverged, m/s or rad/s. MuJoCo's own limit of 1e10 is far too late."""


class PhysicsBackend(Protocol):
    """N independent worlds of one model. Every array is live: index it, do not keep a copy across a call.

    Worlds are independent: nothing in one of them, divergence included, changes any bit of another. Results do not
    depend on the number of threads.
    """

    model: mujoco.MjModel
    """Host model. Read only: the worlds run on a copy."""
    num_worlds: int
    device: str
    """Device of the worlds: "cpu" or "cuda"."""

    qpos: Array
    """[N, nq], writable."""
    qvel: Array
    """[N, nv], writable."""
    ctrl: Array
    """[N, nu], writable: applied by the next `step`."""
    mocap_pos: Array
    """[N, nmocap, 3] m, writable."""
    mocap_quat: Array
    """[N, nmocap, 4] wxyz, writable."""
    time: Array
    """[N] seconds since the last `set_state`."""

    site_xpos: Array
    """[N, nsite, 3] m, read only, current after every call; likewise the fields below."""
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
        """Return another position- or velocity-dependent MjData field (`cvel`, `sensordata`, ...): live, [N, ...]."""
        ...

    def expand_field(self, name: str) -> Array:
        """Return a model field with one value per world.

        Args:
            name: One of `VARIABLE_FIELDS`, named as in MjModel.

        Returns:
            [N, ...], live and writable; initially the model's value. Changes take effect with the next `set_state` or
            `step`, and in images.
        """
        ...

    @property
    def expanded_fields(self) -> Mapping[str, Array]:
        """Return the fields that `expand_field` returned so far."""
        ...

    def step(self, substeps: int) -> BoolArray:
        """Advance every world by `substeps` physics steps under `ctrl`; derived fields are current afterwards.

        A world is reported by the call in which it diverges. It returns to its state before that call, so that no
        array ever holds a non-finite number. It stays there, and is reported by every call, until `set_state`.

        Returns:
            bool [N]: the diverged worlds.
        """
        ...

    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        """Set the state of some worlds and clear their divergence.

        Time, controls, warm start and activations are zeroed, and derived fields updated. Mocap poses stay as they
        are: write them first.

        Args:
            rows: int [n], each row once, any order.
            qpos: [n, nq].
            qvel: [n, nv].
        """
        ...

    def divergence_reasons(self) -> dict[int, str]:
        """Return diverged world -> reason, e.g. "QVEL, QACC not finite, or huge"."""
        ...

    def snapshot(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return copies of the full state, arrays [N, ...] by name; divergences are not part of it."""
        ...

    def restore(self, snapshot: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Restore every world from a `snapshot` of an equal backend."""
        ...

    def close(self) -> None:
        """Free the worlds. No array may be read afterwards. May be called twice."""
        ...
