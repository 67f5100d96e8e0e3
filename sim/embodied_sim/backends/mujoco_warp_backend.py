"""GPU engine: `mujoco_warp`, float32, all worlds in one launch; also on Warp's `cpu` device.

The host uses mirrors: its writes are pushed before each call, and all readable fields are pulled after it. `as_tensor`
returns the device arrays without a copy. The launches of a control step are recorded once as a graph and then replayed:
on the CPU this takes a twentieth of the time. Tested on the `cpu` device; "cuda" has not been run.

Differences from the C engine: float32; a solver tolerance of at least 1e-6; no automatic reset of diverged worlds (the
flag that disables it is unknown there); no mid-phase. Integrator, cone, solver and iterations are those of the model.
A contact that needs more than about 1e8 m/s2 exceeds the line search: the C engine diverges, while here the bodies
penetrate each other. Results are bit-identical from run to run on the `cpu` device, but not on a GPU (atomic sums).
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

from embodied_sim.backends.backend import (
    DERIVED_FIELDS,
    INPUT_FIELDS,
    LIVE_FIELDS,
    MAX_SPEED,
    VARIABLE_FIELDS,
    Array,
    BoolArray,
    PhysicsBackend,
    Rows,
)
from embodied_sim.backends.contact_limits import ContactLimits
from embodied_sim.backends.host_mirror import HostMirror, LastGoodState
from embodied_sim.sim_errors import SimError, lookup

if TYPE_CHECKING:
    from torch import Tensor

MASS_FIELDS = ("body_mass", "body_inertia")
MASS_DERIVED_FIELDS = (
    "body_subtreemass", "body_invweight0", "dof_invweight0", "tendon_invweight0", "actuator_acc0", "cam_poscom0",
    "light_poscom0",
)  # fmt: skip
"""Model fields that are computed from masses, so each world needs its own values."""

STATE_FIELDS = ("qpos", "qvel", "act", "qacc_warmstart", "time")

UNSUPPORTED_FLAGS = int(mujoco.mjtDisableBit.mjDSBL_AUTORESET | mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
"""Flags that disable features which mujoco_warp does not have; it rejects these flags."""


class WarpBackend(PhysicsBackend):
    """`PhysicsBackend` on mujoco_warp."""

    def __init__(
        self, model: mujoco.MjModel, num_worlds: int, device: str = "cpu", contact_limits: ContactLimits | None = None
    ) -> None:
        """Put the model and its worlds on the device, "cpu" or "cuda"; default limits follow from the model.

        Raises `SimError` if the device does not exist, or mujoco_warp cannot run the model.
        """
        warp.config.log_level = warp.LOG_WARNING  # suppresses the banner and the list of loaded modules
        self.device = _validate_device(device)
        self.model = copy.copy(model)
        self.num_worlds = num_worlds
        self._contact_limits = contact_limits or ContactLimits.from_model(model)
        with self._on_device():
            self.warp_model, self.warp_data = _put_on_device(self.model, num_worlds, self._contact_limits)
        self._template_data = mujoco.MjData(self.model)
        self._mirrors: dict[str, HostMirror] = {}
        self._expanded_fields: dict[str, HostMirror] = {}
        for name in (*STATE_FIELDS, *INPUT_FIELDS, *DERIVED_FIELDS):
            host = self._mirror(name).host
            if name in LIVE_FIELDS:
                setattr(self, name, host)
        self._divergence_reasons = {}
        self._graphs: dict[int, warp.Graph] = {}
        self._update_derived()
        self._last_good_state = LastGoodState([self._mirrors[name] for name in STATE_FIELDS])

    def read_field(self, name: str) -> npt.NDArray[np.generic]:
        return self._mirror(name).host

    def expand_field(self, name: str) -> Array:
        assert name in VARIABLE_FIELDS, name
        if name not in self._expanded_fields:
            shape = np.shape(getattr(self.model, name))
            self._expanded_fields[name] = HostMirror(getattr(self.warp_model, name), (self.num_worlds, *shape))
        return self._expanded_fields[name].host

    @property
    def expanded_fields(self) -> Mapping[str, Array]:
        return {name: mirror.host for name, mirror in self._expanded_fields.items()}

    def as_tensor(self, name: str) -> Tensor:
        """Return a field of MjData or of `VARIABLE_FIELDS` as a tensor that shares its memory with the worlds.

        Writes take effect at the next call, unless the host has also written to its array of that name; the host sees
        them after the next call. Change masses through `expand_field`, which updates the derived fields. On a GPU use
        torch's default stream, which synchronizes with Warp's.

        The tensor is float32 [N, ...]; rotation matrices are [..., 3, 3].
        """
        import torch  # deferred: heavy, and not needed elsewhere in this module

        source = getattr(self.warp_model if name in VARIABLE_FIELDS else self.warp_data, name)
        if not source.size:  # Warp allocates no memory for an empty array
            return torch.zeros(source.numpy().shape, device=self.device)
        tensor: Tensor = warp.to_torch(source)
        return tensor

    def step(self, substeps: int) -> BoolArray:
        # Also checked before the step: damping may slow down a too high speed written by the host.
        self._record_divergences(self._find_invalid_states())
        self._last_good_state.restore(self._diverged_rows())
        self._push()
        self.warp_data.overflow.zero_()
        with self._on_device():
            self._step_physics(substeps)
        self._pull()
        self._record_divergences(self._find_invalid_states() | self._find_overflows())
        if self._divergence_reasons:
            self._last_good_state.restore(self._diverged_rows())
            self._update_derived()
        self._last_good_state.save(slice(None))
        return self._diverged_mask()

    def set_state(self, rows: Rows, qpos: Array, qvel: Array) -> None:
        assert np.isfinite(qpos).all() and np.isfinite(qvel).all(), "a state to start from must be finite"
        for name in (*STATE_FIELDS, "ctrl"):
            self._mirrors[name].host[rows] = 0
        self.qpos[rows], self.qvel[rows] = qpos, qvel
        self._update_derived()
        self._last_good_state.save(rows)
        for row in rows:
            self._divergence_reasons.pop(int(row), None)

    def snapshot(self) -> dict[str, Array]:
        mirrors = {**{name: self._mirrors[name] for name in (*STATE_FIELDS, *INPUT_FIELDS)}, **self._expanded_fields}
        return {name: mirror.host.copy() for name, mirror in mirrors.items()}

    def restore(self, snapshot: Mapping[str, Array]) -> None:
        for name, values in snapshot.items():
            host = self._mirrors[name].host if name in self._mirrors else self.expand_field(name)
            host[...] = values
        self._divergence_reasons.clear()
        self._update_derived()
        self._last_good_state.save(slice(None))

    def close(self) -> None:
        for name in ("_graphs", "_mirrors", "_expanded_fields", "_last_good_state", "warp_model", "warp_data"):
            self.__dict__.pop(name, None)

    def sync_kinematics(self) -> None:
        """Push host writes and update the poses of bodies, cameras and lights on the device, for renderers."""
        self._push()
        with self._on_device():
            mujoco_warp.fwd_kinematics(self.warp_model, self.warp_data)

    def _mirror(self, name: str) -> HostMirror:
        if name not in self._mirrors:
            shape = np.shape(getattr(self._template_data, name))
            self._mirrors[name] = HostMirror(getattr(self.warp_data, name), (self.num_worlds, *shape))
        return self._mirrors[name]

    def _on_device(self) -> warp.ScopedDevice:
        return warp.ScopedDevice(self.device)

    def _push(self) -> None:
        changed = [name for name, mirror in self._expanded_fields.items() if mirror.push()]
        for name in (*STATE_FIELDS, *INPUT_FIELDS):
            self._mirrors[name].push()
        if not set(MASS_FIELDS).isdisjoint(changed):
            with self._on_device():
                mujoco_warp.set_const(self.warp_model, self.warp_data)

    def _pull(self) -> None:
        for mirror in self._mirrors.values():
            mirror.pull()

    def _update_derived(self) -> None:
        """Push host writes, update all derived fields and pull them."""
        self._push()
        with self._on_device():
            self._compute_derived()
        self._pull()

    def _compute_derived(self) -> None:
        """Compute the fields that depend on positions and velocities only, without contacts."""
        model, data = self.warp_model, self.warp_data
        mujoco_warp.fwd_kinematics(model, data)
        mujoco_warp.transmission(model, data)
        mujoco_warp.fwd_velocity(model, data)
        data.sensordata.zero_()
        mujoco_warp.sensor_pos(model, data)
        mujoco_warp.sensor_vel(model, data)

    def _step_physics(self, substeps: int) -> None:
        graph = self._graphs.get(substeps)
        if graph is not None:
            warp.capture_launch(graph)
            return
        self._launch_kernels(substeps)  # also loads the kernels, which is not allowed during capture
        if _supports_graphs(self.device):
            with warp.ScopedCapture() as capture:
                self._launch_kernels(substeps)
            self._graphs[substeps] = capture.graph

    def _launch_kernels(self, substeps: int) -> None:
        for _ in range(substeps):
            mujoco_warp.step(self.warp_model, self.warp_data)
        self._compute_derived()

    def _record_divergences(self, new_divergences: Mapping[int, str]) -> None:
        """Add divergences; a world keeps its first reason."""
        self._divergence_reasons = {**new_divergences, **self._divergence_reasons}

    def _find_invalid_states(self) -> dict[int, str]:
        """Return world -> problem of its state or controls."""
        problems = {
            "QPOS not finite": ~np.isfinite(self.qpos).all(axis=1),
            "QVEL not finite": ~np.isfinite(self.qvel).all(axis=1),
            "CTRL not finite": ~np.isfinite(self.ctrl).all(axis=1),
            f"a speed went beyond {MAX_SPEED:g}": (np.abs(self.qvel) > MAX_SPEED).any(axis=1),
        }
        return {int(row): reason for reason, rows in reversed(problems.items()) for row in np.flatnonzero(rows)}

    def _find_overflows(self) -> dict[int, str]:
        """Return world -> message for worlds with dropped contacts, and warn, because the limits are too low."""
        flags = self.warp_data.overflow.numpy()
        overflows = {
            int(row): self._contact_limits.overflow_message(int(flags[row]))
            for row in np.flatnonzero(flags & ContactLimits.OVERFLOW_FLAGS)
        }
        for row, reason in overflows.items():
            if row not in self._divergence_reasons:
                warnings.warn(f"world {row} has diverged: {reason}", RuntimeWarning, stacklevel=3)
        return overflows


def _validate_device(name: str) -> str:
    lookup({"cpu": 0, "cuda": 0}, name, "device")
    if name == "cuda" and not warp.is_cuda_available():
        raise SimError("the device 'cuda' needs an NVIDIA GPU with its driver, and none is found here: use 'cpu'")
    return name


def _supports_graphs(device: str) -> bool:
    """Whether recorded launches, with their loops, can be replayed."""
    return device == "cpu" or (warp.is_mempool_enabled(device) and warp.is_conditional_graph_supported())


def _put_on_device(
    model: mujoco.MjModel, num_worlds: int, contact_limits: ContactLimits
) -> tuple[mujoco_warp.Model, mujoco_warp.Data]:
    """Put the model, with expanded `VARIABLE_FIELDS`, and the worlds on the current device."""
    model = copy.copy(model)
    model.opt.disableflags &= ~UNSUPPORTED_FLAGS
    try:
        warp_model = mujoco_warp.put_model(
            model, batch_sizes=dict.fromkeys((*VARIABLE_FIELDS, *MASS_DERIVED_FIELDS), num_worlds)
        )
    except (NotImplementedError, ValueError) as error:
        raise SimError(f"the backend 'warp' cannot run this model: {error}") from error
    warp_model.opt.warn_overflow = 0  # suppresses prints; `divergence_reasons` reports overflows
    data = mujoco_warp.make_data(
        model, nworld=num_worlds, nconmax=contact_limits.max_contacts, njmax=contact_limits.max_constraints
    )
    return warp_model, data
