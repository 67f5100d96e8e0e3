"""The batch engine for GPUs: `mujoco_warp`, float32, all worlds in one launch; also on Warp's `cpu` device.

The host works with mirrors: what it has written is pushed before each call, all it can read is pulled after it.
`torch` gives the same arrays without a copy. Both devices run the same code, save that on "cuda" the launches of a
control step are recorded once as a CUDA graph and then replayed. Tested on the `cpu` device; "cuda" has not been run.

What differs from the C engine: float32, a solver tolerance of no less than 1e-6, never a reset of a diverged world by
MuJoCo (the flag that forbids it is unknown there), no mid-phase to disable. Integrator, cone, solver and iterations
are those of the model. A contact so stiff or deep that it asks for more than some 1e8 m/s2 is past its line search:
the C engine diverges there, here the bodies sink into each other. Bit-identical from run to run on the `cpu` device,
not on a GPU (atomic sums).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import mujoco
import mujoco_warp
import numpy as np
import numpy.typing as npt
import warp

from sim.backends.base import MAX_SPEED, VARIABLE, Array, BoolArray, Rows
from sim.backends.budget import Budget
from sim.backends.mirror import Mirror, Snapshot
from sim.errors import SimError, lookup

if TYPE_CHECKING:
    from torch import Tensor

MASS = ("body_mass", "body_inertia")
FOLLOWS_MASS = (
    "body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0", "cam_poscom0",
    "light_poscom0",
)  # fmt: skip
"""Model fields that are computed from masses, so that each world needs its own."""

STATE = ("qpos", "qvel", "act", "qacc_warmstart", "time")
INPUT = ("ctrl", "mocap_pos", "mocap_quat")
DERIVED = ("site_xpos", "site_xmat", "xpos", "xquat", "xanchor", "xaxis")

UNKNOWN_FLAGS = int(mujoco.mjtDisableBit.mjDSBL_AUTORESET | mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
"""What mujoco_warp never does anyway, and refuses to be told not to do."""


class WarpBackend:
    """`Backend` on mujoco_warp."""

    def __init__(
        self, model: mujoco.MjModel, num_worlds: int, device: str = "cpu", budget: Budget | None = None
    ) -> None:
        """`device`: "cpu" or "cuda"; `budget`: room for contacts, by default chosen from the model.

        Raises `SimError` where there is no such device, or for a model that mujoco_warp cannot run.
        """
        warp.config.log_level = warp.LOG_WARNING  # or it greets, and names every module it loads
        self.device = _checked(device)
        self.model = copy.copy(model)
        self.num_worlds = num_worlds
        self._budget = budget or Budget.of(model)
        with self._on_device():
            self.worlds, self.data = _put(self.model, num_worlds, self._budget)
        self._shapes = mujoco.MjData(self.model)
        self._mirrors: dict[str, Mirror] = {}
        self._varied: dict[str, Mirror] = {}
        for name in (*STATE, *INPUT, *DERIVED):
            self._mirror(name)
        self.qpos, self.qvel, self.ctrl = (self._mirrors[name].host for name in ("qpos", "qvel", "ctrl"))
        self.mocap_pos, self.mocap_quat = (self._mirrors[name].host for name in ("mocap_pos", "mocap_quat"))
        self.time = self._mirrors["time"].host
        self.site_xpos, self.site_xmat = (self._mirrors[name].host for name in ("site_xpos", "site_xmat"))
        self.xpos, self.xquat = (self._mirrors[name].host for name in ("xpos", "xquat"))
        self.xanchor, self.xaxis = (self._mirrors[name].host for name in ("xanchor", "xaxis"))
        self._faults: dict[int, str] = {}
        self._graphs: dict[int, warp.Graph] = {}
        self._refresh()
        self._good = Snapshot([self._mirrors[name] for name in STATE])

    def read(self, name: str) -> npt.NDArray[np.generic]:
        return self._mirror(name).host

    def vary(self, name: str) -> Array:
        assert name in VARIABLE, name
        if name not in self._varied:
            shape = np.shape(getattr(self.model, name))
            self._varied[name] = Mirror(getattr(self.worlds, name), (self.num_worlds, *shape))
        return self._varied[name].host

    @property
    def varied(self) -> Mapping[str, Array]:
        return {name: mirror.host for name, mirror in self._varied.items()}

    def torch(self, name: str) -> Tensor:
        """The MjData field `name`, or the model field if it is one of `VARIABLE`, as a tensor float32 [N, ...] that
        shares its memory with the worlds (rotation matrices: [..., 3, 3]).

        What is written to it counts at the next call, unless the host has written to its array of that name too; the
        host sees it after the next call. Masses are for `vary`, which knows what follows from them. On a GPU use
        torch's default stream, which waits for Warp's and the reverse.
        """
        import torch  # heavy, and nothing else here needs it

        field = getattr(self.worlds if name in VARIABLE else self.data, name)
        if not field.size:  # Warp has no memory to share for an empty array
            return torch.zeros(field.numpy().shape, device=self.device)
        tensor: Tensor = warp.to_torch(field)
        return tensor

    def step(self, substeps: int) -> BoolArray:
        # Looked at before as well: damping may slow down, within the step, what the host has made too fast.
        self._note(self._unfit())
        self._good.put_back(self._still())
        self._push()
        self.data.overflow.zero_()
        with self._on_device():
            self._advance(substeps)
        self._pull()
        self._note(self._unfit() | self._overflow())
        if self._faults:
            self._good.put_back(self._still())
            self._refresh()
        self._good.keep(slice(None))
        marks = np.zeros(self.num_worlds, np.bool_)
        marks[self._still()] = True
        return marks

    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        assert np.isfinite(qpos).all() and np.isfinite(qvel).all(), "a state to start from must be finite"
        for name in (*STATE, "ctrl"):
            self._mirrors[name].host[rows] = 0
        self.qpos[rows], self.qvel[rows] = qpos, qvel
        self._refresh()
        self._good.keep(rows)
        for row in rows:
            self._faults.pop(int(row), None)

    def faults(self) -> dict[int, str]:
        return dict(self._faults)

    def snapshot(self) -> dict[str, Array]:
        mirrors = {**{name: self._mirrors[name] for name in (*STATE, *INPUT)}, **self._varied}
        return {name: mirror.host.copy() for name, mirror in mirrors.items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        for name, values in snapshot.items():
            host = self._mirrors[name].host if name in self._mirrors else self.vary(name)
            host[...] = values
        self._faults.clear()
        self._refresh()
        self._good.keep(slice(None))

    def close(self) -> None:
        for name in ("_graphs", "_mirrors", "_varied", "_good", "worlds", "data"):
            self.__dict__.pop(name, None)

    def flush(self) -> None:
        """Bring what the host has written to the device, and the poses of bodies, cameras and lights up to date
        there; for who draws from `worlds` and `data`."""
        self._push()
        with self._on_device():
            mujoco_warp.fwd_kinematics(self.worlds, self.data)

    def _mirror(self, name: str) -> Mirror:
        if name not in self._mirrors:
            shape = np.shape(getattr(self._shapes, name))
            self._mirrors[name] = Mirror(getattr(self.data, name), (self.num_worlds, *shape))
        return self._mirrors[name]

    def _on_device(self) -> warp.ScopedDevice:
        return warp.ScopedDevice(self.device)

    def _push(self) -> None:
        changed = [name for name, mirror in self._varied.items() if mirror.push()]
        for name in (*STATE, *INPUT):
            self._mirrors[name].push()
        if not set(MASS).isdisjoint(changed):
            with self._on_device():
                mujoco_warp.set_const(self.worlds, self.data)

    def _pull(self) -> None:
        for mirror in self._mirrors.values():
            mirror.pull()

    def _refresh(self) -> None:
        """Everything derived made current, for what the host has written."""
        self._push()
        with self._on_device():
            self._derive()
        self._pull()

    def _derive(self) -> None:
        """What depends on positions and velocities only, contacts apart."""
        worlds, data = self.worlds, self.data
        mujoco_warp.fwd_kinematics(worlds, data)
        mujoco_warp.transmission(worlds, data)
        mujoco_warp.fwd_velocity(worlds, data)
        data.sensordata.zero_()
        mujoco_warp.sensor_pos(worlds, data)
        mujoco_warp.sensor_vel(worlds, data)

    def _advance(self, substeps: int) -> None:
        graph = self._graphs.get(substeps)
        if graph is not None:
            warp.capture_launch(graph)
            return
        self._launch(substeps)  # which also loads the kernels: that is not allowed in a recording
        if self.device == "cuda" and warp.is_mempool_enabled(self.device) and warp.is_conditional_graph_supported():
            with warp.ScopedCapture() as capture:
                self._launch(substeps)
            self._graphs[substeps] = capture.graph

    def _launch(self, substeps: int) -> None:
        for _ in range(substeps):
            mujoco_warp.step(self.worlds, self.data)
        self._derive()

    def _still(self) -> Rows:
        return np.array(sorted(self._faults), np.int64)

    def _note(self, found: Mapping[int, str]) -> None:
        """Add faults; a world keeps its first."""
        self._faults = {**found, **self._faults}

    def _unfit(self) -> dict[int, str]:
        """What is wrong with the state and the controls of which worlds."""
        wrong = {
            "QPOS not finite": ~np.isfinite(self.qpos).all(axis=1),
            "QVEL not finite": ~np.isfinite(self.qvel).all(axis=1),
            "CTRL not finite": ~np.isfinite(self.ctrl).all(axis=1),
            f"a speed went beyond {MAX_SPEED:g}": (np.abs(self.qvel) > MAX_SPEED).any(axis=1),
        }
        return {int(row): why for why, rows in reversed(wrong.items()) for row in np.flatnonzero(rows)}

    def _overflow(self) -> dict[int, str]:
        """Worlds some of whose contacts were dropped for want of room; warned of, as it is not the worlds' fault."""
        bits = self.data.overflow.numpy()
        found = {int(row): self._budget.exceeded(int(bits[row])) for row in np.flatnonzero(bits & Budget.DROPPED)}
        for row, why in found.items():
            if row not in self._faults:
                warnings.warn(f"world {row} stands still: {why}", RuntimeWarning, stacklevel=3)
        return found


def _checked(name: str) -> str:
    lookup({"cpu": 0, "cuda": 0}, name, "device")
    if name == "cuda" and not warp.is_cuda_available():
        raise SimError("the device 'cuda' needs an NVIDIA GPU with its driver, and none is found here: use 'cpu'")
    return name


def _put(model: mujoco.MjModel, num_worlds: int, budget: Budget) -> tuple[mujoco_warp.Model, mujoco_warp.Data]:
    """The model, with every field that can differ between worlds apart, and the worlds, on the current device."""
    model = copy.copy(model)
    model.opt.disableflags &= ~UNKNOWN_FLAGS
    try:
        worlds = mujoco_warp.put_model(model, batch_sizes=dict.fromkeys((*VARIABLE, *FOLLOWS_MASS), num_worlds))
    except (NotImplementedError, ValueError) as error:
        raise SimError(f"the backend 'warp' cannot run this model: {error}") from error
    worlds.opt.warn_overflow = 0  # it would print: `faults` reports instead
    data = mujoco_warp.make_data(model, nworld=num_worlds, nconmax=budget.contacts, njmax=budget.constraints)
    return worlds, data
