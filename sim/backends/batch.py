"""The CPU engine: `mujoco.batch` with divergence seen in the step in which it happens (reliability of the loop).

MuJoCo resets a diverged world silently and its counters with it. Here automatic reset is disabled, the counters are
zeroed before and read after every control step, and the state is checked besides.

Measured on two cores, 64 seven-joint arms with four cubes, 10 substeps a call: persistent data with the velocity
stage costs nothing over no stage at all (the next step continues from it), without persistence it costs 10 %.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import mujoco
import numpy as np
import numpy.typing as npt
from mujoco.batch import Batch, SimulationError

from sim.backends.base import MAX_SPEED, VARIABLE, Array, BoolArray, Rows

CURRENT = int(mujoco.mjtStage.mjSTAGE_VEL)
DIVERGED = {
    int(mujoco.mjtWarning.mjWARN_BADQPOS): "QPOS",
    int(mujoco.mjtWarning.mjWARN_BADQVEL): "QVEL",
    int(mujoco.mjtWarning.mjWARN_BADQACC): "QACC",
    int(mujoco.mjtWarning.mjWARN_BADCTRL): "CTRL",
}


class BatchBackend:
    """`Backend` on the native thread pool of `mujoco.batch`; bit-identical to a loop of `mj_step`."""

    device = "cpu"

    def __init__(self, model: mujoco.MjModel, num_worlds: int, threads: int = 0) -> None:
        self.model = copy.copy(model)
        self.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        self.num_worlds = num_worlds
        self._batch = batch = Batch(self.model, num_worlds, threads, persistent=True)
        self.qpos: Array = batch.bind("qpos")
        self.qvel: Array = batch.bind("qvel")
        self.ctrl: Array = batch.bind("ctrl")
        self.mocap_pos: Array = batch.bind("mocap_pos")
        self.mocap_quat: Array = batch.bind("mocap_quat")
        self.time: Array = batch.bind("time")
        self.site_xpos: Array = batch.bind("site_xpos")
        self.site_xmat: Array = batch.bind("site_xmat")
        self.xpos: Array = batch.bind("xpos")
        self.xquat: Array = batch.bind("xquat")
        self.xanchor: Array = batch.bind("xanchor")
        self.xaxis: Array = batch.bind("xaxis")
        batch.forward(stage=CURRENT)
        self._varied: dict[str, Array] = {}
        self._faults: dict[int, str] = {}
        self._good = batch.state.copy()

    def read(self, name: str) -> npt.NDArray[np.generic]:
        field = self._batch.bind(name)
        self._batch.forward(stage=CURRENT)
        return field

    def vary(self, name: str) -> Array:
        assert name in VARIABLE, name
        if name not in self._varied:
            self._varied[name] = self._batch.expand(name)
        return self._varied[name]

    @property
    def varied(self) -> Mapping[str, Array]:
        return self._varied

    def step(self, substeps: int) -> BoolArray:
        live = np.setdiff1d(np.arange(self.num_worlds), list(self._faults))
        self._batch.warning[...] = 0
        # Looked at before as well: damping may slow down, within the step, what the host has made too fast.
        fit = self._fit()
        with muted():
            errors = self._advance(live, substeps)
        found = errors | self._divergence(live, fit & self._fit())
        self._faults |= found
        # Rows that were already standing still are put back too: a write to their state must not revive them.
        self._restore(np.array(sorted(self._faults), np.int64))
        self._good[...] = self._batch.state
        return self._marks()

    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        order = np.argsort(rows)
        ids = rows[order]
        assert np.isfinite(qpos).all() and np.isfinite(qvel).all(), "a state to start from must be finite"
        poses = self.mocap_pos[ids], self.mocap_quat[ids]
        self._batch.reset(ids, stage=int(mujoco.mjtStage.mjSTAGE_NONE))
        self.mocap_pos[ids], self.mocap_quat[ids] = poses
        self.qpos[ids] = qpos[order]
        self.qvel[ids] = qvel[order]
        if {"body_mass", "body_inertia"} & self._varied.keys():
            self._batch.set_const()
        self._batch.forward(ids, stage=CURRENT)
        self._good[ids] = self._batch.state[ids]
        for row in ids:
            self._faults.pop(int(row), None)

    def faults(self) -> dict[int, str]:
        return dict(self._faults)

    def snapshot(self) -> dict[str, Array]:
        return {"state": self._batch.state.copy(), **{name: field.copy() for name, field in self._varied.items()}}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        for name, values in snapshot.items():
            if name != "state":
                self.vary(name)[...] = values
        if {"body_mass", "body_inertia"} & snapshot.keys():
            self._batch.set_const()
        self._faults.clear()
        self._good[...] = snapshot["state"]
        self._restore(np.arange(self.num_worlds))

    def close(self) -> None:
        self.__dict__.pop("_batch", None)

    def _advance(self, live: Rows, substeps: int) -> dict[int, str]:
        """Step the live worlds; MuJoCo's own errors (which left their worlds where they were) by world."""
        try:
            self._batch.step(live, nstep=substeps, stage=CURRENT)
        except SimulationError as error:
            return {int(row): self._batch.error(int(row)) for row in error.ids}
        return {}

    def _fit(self) -> BoolArray:
        """[N]: positions are finite and speeds within the limit."""
        return np.asarray(np.isfinite(self.qpos).all(axis=1) & (np.abs(self.qvel) <= MAX_SPEED).all(axis=1))

    def _divergence(self, live: Rows, fit: BoolArray) -> dict[int, str]:
        """What is wrong with which of the live worlds, given those that are `fit`."""
        number = self._batch.warning[:, list(DIVERGED), 1]
        bad = live[(number.any(axis=1) | ~fit)[live]]
        return {int(row): self._why(int(row)) for row in bad}

    def _why(self, row: int) -> str:
        seen = [name for kind, name in DIVERGED.items() if self._batch.warning[row, kind, 1]]
        if seen:
            return f"{', '.join(seen)} not finite, or huge"
        return f"a speed went beyond {MAX_SPEED:g}"

    def _restore(self, rows: Rows) -> None:
        if len(rows):
            self._batch.state[rows] = self._good[rows]
            self._batch.forward(rows, stage=CURRENT)

    def _marks(self) -> BoolArray:
        marks = np.zeros(self.num_worlds, np.bool_)
        marks[list(self._faults)] = True
        return marks


@contextmanager
def muted() -> Iterator[None]:
    """Keep MuJoCo from writing a warning per fault to the terminal and to MUJOCO_LOG.TXT: faults are reported."""
    before = mujoco.MjLogConfig.get()
    quiet = mujoco.MjLogConfig.get()
    quiet.logto_console = quiet.logto_file = False
    quiet.set()
    try:
        yield
    finally:
        before.set()
