"""Base class of physics engines: N worlds of one model, live arrays, one call per control step."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

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
INPUT_FIELDS = ("ctrl", "mocap_pos", "mocap_quat")
DERIVED_FIELDS = ("site_xpos", "site_xmat", "xpos", "xquat", "xanchor", "xaxis")
LIVE_FIELDS = ("qpos", "qvel", "time", *INPUT_FIELDS, *DERIVED_FIELDS)  # data fields that are attributes of a backend

MAX_SPEED = 1e4
"""Speed at which a world counts as diverged, m/s or rad/s. MuJoCo's own limit of 1e10 is far too late."""


class PhysicsBackend(ABC):
    """N independent worlds of one model. Every array is live: index it, do not keep a copy across a call.

    Worlds are independent: nothing in one of them, divergence included, changes any bit of another. Results do not
    depend on the number of threads.
    """

    model: mujoco.MjModel
    """Host model. Read only: the worlds run on a copy."""
    num_worlds: int
    device: str  # device of the worlds: "cpu" or "cuda"
    _divergence_reasons: dict[int, str]

    qpos: Array  # [N, nq], writable
    qvel: Array  # [N, nv], writable
    ctrl: Array  # [N, nu], writable: applied by the next `step`
    mocap_pos: Array  # [N, nmocap, 3] m, writable
    mocap_quat: Array  # [N, nmocap, 4] wxyz, writable
    time: Array  # [N] seconds since the last `set_state`

    site_xpos: Array  # [N, nsite, 3] m, read only, current after every call; likewise the fields below
    site_xmat: Array  # [N, nsite, 9]
    xpos: Array  # [N, nbody, 3]
    xquat: Array  # [N, nbody, 4] wxyz
    xanchor: Array  # [N, njnt, 3]
    xaxis: Array  # [N, njnt, 3]

    @abstractmethod
    def read_field(self, name: str) -> npt.NDArray[np.generic]:
        """Return another position- or velocity-dependent MjData field (`cvel`, `sensordata`, ...): live, [N, ...]."""

    @abstractmethod
    def expand_field(self, name: str) -> Array:
        """Return a model field of `VARIABLE_FIELDS` with one value per world: [N, ...], live and writable.

        Initially it is the model's value. Changes take effect with the next `set_state` or `step`, and in images.
        """

    @property
    @abstractmethod
    def expanded_fields(self) -> Mapping[str, Array]:
        """Return the fields that `expand_field` returned so far."""

    @abstractmethod
    def step(self, substeps: int) -> BoolArray:
        """Advance every world by `substeps` physics steps under `ctrl`; return the diverged worlds, bool [N].

        A world is reported by the call in which it diverges. It returns to its state before that call, so that no
        array ever holds a non-finite number. It stays there, and is reported by every call, until `set_state`.
        Derived fields are current afterwards.
        """

    @abstractmethod
    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        """Set qpos [n, nq] and qvel [n, nv] of the worlds `rows` [n] (any order) and clear their divergence.

        Time, controls, warm start and activations are zeroed, and derived fields updated. Mocap poses stay as they
        are: write them first.
        """

    @abstractmethod
    def snapshot(self) -> dict[str, Array]:
        """Return copies of the full state, arrays [N, ...] by name; divergences are not part of it."""

    @abstractmethod
    def restore(self, snapshot: Mapping[str, Array]) -> None:
        """Restore every world from a `snapshot` of an equal backend."""

    @abstractmethod
    def close(self) -> None:
        """Free the worlds. No array may be read afterwards. May be called twice."""

    def divergence_reasons(self) -> dict[int, str]:
        """Return diverged world -> reason, e.g. "QVEL, QACC not finite, or huge"."""
        return dict(self._divergence_reasons)

    def _diverged_rows(self) -> Rows:
        return np.array(sorted(self._divergence_reasons), np.int64)

    def _diverged_mask(self) -> BoolArray:
        return np.isin(np.arange(self.num_worlds), self._diverged_rows())
