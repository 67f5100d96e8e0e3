"""Worlds that broke down, written to files from which the breakdown can be played again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from embodied_sim.backends.backend import VARIABLE_FIELDS, Array, PhysicsBackend
from embodied_sim.sim_errors import SimError, lookup

DIVERGENCE_FORMAT = "embodied_rm fault 1"


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The last good state of a world that diverged in the next control step, and what was commanded then."""

    task: str
    robot: str
    reason: str
    """What MuJoCo, or the check of the speeds, said."""
    qpos: list[float]
    qvel: list[float]
    ctrl: list[float]
    mocap_pos: list[list[float]]
    model_fields: dict[str, list[object]]
    """Model fields that this world had of its own."""

    def apply_to(self, backend: PhysicsBackend, row: int) -> None:
        """Bring a world of the same scene to that state, the command applied: the next `step` repeats the fault.

        Raises `SimError` when it is of another scene.
        """
        for name, value in self.model_fields.items():
            lookup(dict.fromkeys(VARIABLE_FIELDS), name, "model field")
            target = backend.expand_field(name)[row]
            target[...] = reshape_like(name, value, target)
        backend.mocap_pos[row] = reshape_like("mocap_pos", self.mocap_pos, backend.mocap_pos[row])
        qpos, qvel = (
            reshape_like("qpos", self.qpos, backend.qpos[row]),
            reshape_like("qvel", self.qvel, backend.qvel[row]),
        )
        ctrl = reshape_like("ctrl", self.ctrl, backend.ctrl[row])
        backend.set_state(np.array([row]), qpos[None], qvel[None])
        backend.ctrl[row] = ctrl


def reshape_like(name: str, value: object, template: Array) -> Array:
    """What a file says of a state as an array of the shape of `like`. Raises `SimError` naming what does not fit."""
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise SimError(f"the fault's {name} is not an array of numbers") from None
    if array.size != template.size or not np.isfinite(array).all():
        raise SimError(
            f"the fault is of another scene: {name} must be {template.size} finite numbers, got {array.size}"
        )
    return array.reshape(template.shape)


def write_divergence(
    dump_dir: Path, backend: PhysicsBackend, row: int, ctrl: Array, reason: str, task: str, robot: str
) -> Path:
    """Write the fault of a world that has just diverged under the command `ctrl` [nu] to a new file; its path."""
    divergence = Divergence(
        task=task,
        robot=robot,
        reason=reason,
        qpos=backend.qpos[row].tolist(),
        qvel=backend.qvel[row].tolist(),
        ctrl=ctrl.tolist(),
        mocap_pos=backend.mocap_pos[row].tolist(),
        model_fields={name: values[row].tolist() for name, values in backend.expanded_fields.items()},
    )
    dump_dir.mkdir(parents=True, exist_ok=True)
    path = dump_dir / f"fault_{len(list(dump_dir.glob('fault_*.json'))):06d}.json"
    path.write_text(json.dumps({"format": DIVERGENCE_FORMAT, **asdict(divergence)}))
    return path


def read_divergence(path: Path) -> Divergence:
    """What `write_fault` wrote. Raises `SimError` naming the file when it is something else."""
    try:
        content = json.loads(path.read_text())
        if content.pop("format") != DIVERGENCE_FORMAT:
            raise SimError(f"{path}: not a fault of this version")
        divergence = Divergence(**content)
        text_fields = (divergence.task, divergence.robot, divergence.reason)
        if not (all(isinstance(text, str) for text in text_fields) and isinstance(divergence.model_fields, dict)):
            raise TypeError
        return divergence
    except OSError as error:
        raise SimError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SimError(f"{path}: not a fault that the simulator wrote") from None
