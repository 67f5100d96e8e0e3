"""Worlds that broke down, written to files from which the breakdown can be played again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sim.backends.base import VARIABLE, Array, Backend
from sim.errors import SimError, lookup

FORMAT = "embodied_rm fault 1"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The last good state of a world that diverged in the next control step, and what was commanded then."""

    task: str
    robot: str
    why: str
    """What MuJoCo, or the check of the speeds, said."""
    qpos: list[float]
    qvel: list[float]
    ctrl: list[float]
    mocap_pos: list[list[float]]
    model: dict[str, list[object]]
    """Model fields that this world had of its own."""

    def put(self, backend: Backend, row: int) -> None:
        """Bring a world of the same scene to that state, the command applied: the next `step` repeats the fault.

        Raises `SimError` when it is of another scene.
        """
        for name, value in self.model.items():
            lookup(dict.fromkeys(VARIABLE), name, "model field")
            field = backend.vary(name)[row]
            field[...] = fitting(name, value, field)
        backend.mocap_pos[row] = fitting("mocap_pos", self.mocap_pos, backend.mocap_pos[row])
        qpos, qvel = fitting("qpos", self.qpos, backend.qpos[row]), fitting("qvel", self.qvel, backend.qvel[row])
        ctrl = fitting("ctrl", self.ctrl, backend.ctrl[row])
        backend.set_state(np.array([row]), qpos[None], qvel[None])
        backend.ctrl[row] = ctrl


def fitting(name: str, value: object, like: Array) -> Array:
    """What a file says of a state as an array of the shape of `like`. Raises `SimError` naming what does not fit."""
    try:
        given = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise SimError(f"the fault's {name} is not an array of numbers") from None
    if given.size != like.size or not np.isfinite(given).all():
        raise SimError(f"the fault is of another scene: {name} must be {like.size} finite numbers, got {given.size}")
    return given.reshape(like.shape)


def write_fault(folder: Path, backend: Backend, row: int, ctrl: Array, why: str, task: str, robot: str) -> Path:
    """Write the fault of a world that has just diverged under the command `ctrl` [nu] to a new file; its path."""
    fault = Fault(
        task=task,
        robot=robot,
        why=why,
        qpos=backend.qpos[row].tolist(),
        qvel=backend.qvel[row].tolist(),
        ctrl=ctrl.tolist(),
        mocap_pos=backend.mocap_pos[row].tolist(),
        model={name: values[row].tolist() for name, values in backend.varied.items()},
    )
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fault_{len(list(folder.glob('fault_*.json'))):06d}.json"
    path.write_text(json.dumps({"format": FORMAT, **asdict(fault)}))
    return path


def read_fault(path: Path) -> Fault:
    """What `write_fault` wrote. Raises `SimError` naming the file when it is something else."""
    try:
        content = json.loads(path.read_text())
        if content.pop("format") != FORMAT:
            raise SimError(f"{path}: not a fault of this version")
        fault = Fault(**content)
        texts = (fault.task, fault.robot, fault.why)
        if not (all(isinstance(text, str) for text in texts) and isinstance(fault.model, dict)):
            raise TypeError
        return fault
    except OSError as error:
        raise SimError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SimError(f"{path}: not a fault that the simulator wrote") from None
