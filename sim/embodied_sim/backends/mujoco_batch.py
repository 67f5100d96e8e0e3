"""CPU engine: `mujoco.batch` with divergence detection in every control step.

MuJoCo silently resets a diverged world and its warning counters. This engine disables the automatic reset, reads the
counters after every control step, and checks the state.

Measured on two cores with 64 seven-joint arms and four cubes, 10 substeps per call: computing the velocity stage costs
nothing with persistent data, because the next step continues from it, and 10 % without.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco.batch import Batch, SimulationError

from embodied_sim.backends.backend import (
    LIVE_FIELDS,
    MAX_SPEED,
    VARIABLE_FIELDS,
    Array,
    BoolArray,
    PhysicsBackend,
    Rows,
)

REFRESH_STAGE = int(mujoco.mjtStage.mjSTAGE_VEL)
WARNING_NAMES = {
    int(mujoco.mjtWarning.mjWARN_BADQPOS): "QPOS",
    int(mujoco.mjtWarning.mjWARN_BADQVEL): "QVEL",
    int(mujoco.mjtWarning.mjWARN_BADQACC): "QACC",
    int(mujoco.mjtWarning.mjWARN_BADCTRL): "CTRL",
}


class BatchBackend(PhysicsBackend):
    """`PhysicsBackend` on the native thread pool of `mujoco.batch`; bit-identical to a loop of `mj_step`."""

    device = "cpu"

    def __init__(self, model: mujoco.MjModel, num_worlds: int, threads: int = 0) -> None:
        self.model = copy.copy(model)
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.num_worlds = num_worlds
        self._batch = batch = Batch(self.model, num_worlds, threads, persistent=True)
        for name in LIVE_FIELDS:
            setattr(self, name, batch.bind(name))
        batch.forward(stage=REFRESH_STAGE)
        self._expanded_fields: dict[str, Array] = {}
        self._divergence_reasons = {}
        self._last_good_state = batch.state.copy()

    def read_field(self, name: str) -> npt.NDArray[np.generic]:
        field = self._batch.bind(name)
        self._batch.forward(stage=REFRESH_STAGE)
        return field

    def expand_field(self, name: str) -> Array:
        assert name in VARIABLE_FIELDS, name
        if name not in self._expanded_fields:
            self._expanded_fields[name] = self._batch.expand(name)
        return self._expanded_fields[name]

    @property
    def expanded_fields(self) -> Mapping[str, Array]:
        return self._expanded_fields

    def step(self, substeps: int) -> BoolArray:
        active_rows = np.setdiff1d(np.arange(self.num_worlds), list(self._divergence_reasons))
        self._batch.warning[...] = 0
        # Looked at before as well: damping may slow down, within the step, what the host has made too fast.
        valid = self._valid_states()
        with mute_mujoco_log():
            errors = self._step_rows(active_rows, substeps)
        new_divergences = errors | self._find_divergences(active_rows, valid & self._valid_states())
        self._divergence_reasons |= new_divergences
        # Rows that diverged earlier are restored too: a write to their state must not revive them.
        self._restore_last_good(self._diverged_rows())
        self._last_good_state[...] = self._batch.state
        return self._diverged_mask()

    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        order = np.argsort(rows)
        ids = rows[order]
        assert np.isfinite(qpos).all() and np.isfinite(qvel).all(), "a state to start from must be finite"
        mocap_poses = self.mocap_pos[ids], self.mocap_quat[ids]
        self._batch.reset(ids, stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        self.mocap_pos[ids], self.mocap_quat[ids] = mocap_poses
        self.qpos[ids] = qpos[order]
        self.qvel[ids] = qvel[order]
        if {"body_mass", "body_inertia"} & self._expanded_fields.keys():
            self._batch.set_const()
        self._batch.forward(ids, stage=REFRESH_STAGE)
        self._last_good_state[ids] = self._batch.state[ids]
        for row in ids:
            self._divergence_reasons.pop(int(row), None)

    def snapshot(self) -> dict[str, Array]:
        expanded_fields = {name: field.copy() for name, field in self._expanded_fields.items()}
        return {"state": self._batch.state.copy(), **expanded_fields}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        for name, values in snapshot.items():
            if name != "state":
                self.expand_field(name)[...] = values
        if {"body_mass", "body_inertia"} & snapshot.keys():
            self._batch.set_const()
        self._divergence_reasons.clear()
        self._last_good_state[...] = snapshot["state"]
        self._restore_last_good(np.arange(self.num_worlds))

    def close(self) -> None:
        self.__dict__.pop("_batch", None)

    def _step_rows(self, active_rows: Rows, substeps: int) -> dict[int, str]:
        """Step the active worlds; return world -> MuJoCo error. Worlds with an error did not move."""
        try:
            self._batch.step(active_rows, nstep=substeps, stage=REFRESH_STAGE)
        except SimulationError as error:
            return {int(row): self._batch.error(int(row)) for row in error.ids}
        return {}

    def _valid_states(self) -> BoolArray:
        """Return whether positions are finite and speeds within the limit, bool [N]."""
        return np.asarray(np.isfinite(self.qpos).all(axis=1) & (np.abs(self.qvel) <= MAX_SPEED).all(axis=1))

    def _find_divergences(self, active_rows: Rows, valid: BoolArray) -> dict[int, str]:
        """Return diverged world -> reason, among the active worlds; `valid` [N] is the result of the state check."""
        counts = self._batch.warning[:, list(WARNING_NAMES), 1]
        diverged_rows = active_rows[(counts.any(axis=1) | ~valid)[active_rows]]
        return {int(row): self._describe_divergence(int(row)) for row in diverged_rows}

    def _describe_divergence(self, row: int) -> str:
        warning_names = [name for warning, name in WARNING_NAMES.items() if self._batch.warning[row, warning, 1]]
        if warning_names:
            return f"{', '.join(warning_names)} not finite, or huge"
        return f"a speed went beyond {MAX_SPEED:g}"

    def _restore_last_good(self, rows: Rows) -> None:
        if len(rows):
            self._batch.state[rows] = self._last_good_state[rows]
            self._batch.forward(rows, stage=REFRESH_STAGE)


@contextmanager
def mute_mujoco_log() -> Iterator[None]:
    """Disable MuJoCo's warnings on the terminal and in MUJOCO_LOG.TXT: divergences are reported otherwise."""
    saved_config = mujoco.MjLogConfig.get()
    quiet_config = mujoco.MjLogConfig.get()
    quiet_config.logto_console = quiet_config.logto_file = False
    quiet_config.set()
    try:
        yield
    finally:
        saved_config.set()
