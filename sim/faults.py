"""Worlds that broke down, written to files from which the breakdown can be played again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sim.backends.base import Array, Backend
from sim.errors import SimError

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
        """Bring a world of the same scene to that state, the command applied: the next `step` repeats the fault."""
        for name, value in self.model.items():
            backend.vary(name)[row] = np.array(value)
        backend.mocap_pos[row] = np.array(self.mocap_pos).reshape(backend.mocap_pos[row].shape)
        backend.set_state(np.array([row]), np.array([self.qpos]), np.array([self.qvel]))
        backend.ctrl[row] = self.ctrl


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
        return Fault(**content)
    except OSError as error:
        raise SimError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SimError(f"{path}: not a fault that the simulator wrote") from None
