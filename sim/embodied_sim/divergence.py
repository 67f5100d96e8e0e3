"""Dumps of diverged worlds, and their replay."""

import json
import stat
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from embodied_sim.backends import make_backend
from embodied_sim.backends.backend import VARIABLE_FIELDS, Array, PhysicsBackend
from embodied_sim.control import SUBSTEPS_PER_STEP
from embodied_sim.render import make_renderer
from embodied_sim.robots import Robot
from embodied_sim.scene import build_scene
from embodied_sim.sim_errors import SimError, lookup
from embodied_sim.task import Task

MAX_DUMP_BYTES = 1 << 24  # one has 10 kB
DIVERGENCE_FORMAT = "embodied_rm divergence 1"


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Last valid state of a world before it diverged, and the controls of the diverging control step."""

    task: str
    robot: str
    reason: str  # message of MuJoCo or of the speed check
    qpos: list[float]
    qvel: list[float]
    ctrl: list[float]
    mocap_pos: list[list[float]]
    model_fields: dict[str, list[object]]  # model fields that were specific to this world

    def apply_to(self, backend: PhysicsBackend, row: int) -> None:
        """Write the state and controls into a world, so that the next `step` repeats the divergence.

        Raises `SimError` if the dump is of another scene.
        """
        for name, value in self.model_fields.items():
            lookup(dict.fromkeys(VARIABLE_FIELDS), name, "model field")
            target = backend.expand_field(name)[row]
            target[...] = reshape_like(name, value, target)
        mocap_pos, qpos, qvel, ctrl = (
            reshape_like(name, getattr(self, name), getattr(backend, name)[row])
            for name in ("mocap_pos", "qpos", "qvel", "ctrl")
        )
        backend.mocap_pos[row] = mocap_pos
        backend.set_state(np.array([row]), qpos[None], qvel[None])
        backend.ctrl[row] = ctrl


def reshape_like(name: str, value: object, template: Array) -> Array:
    """Convert a field of a dump to an array of the shape of `template`. Raises `SimError` if it does not fit."""
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise SimError(f"{name} of the divergence dump is not an array of numbers") from None
    if array.size != template.size or not np.isfinite(array).all():
        raise SimError(
            f"the divergence dump is of another scene: {name} must be {template.size} finite numbers, got {array.size}"
        )
    return array.reshape(template.shape)


def write_divergence(
    dump_dir: Path, backend: PhysicsBackend, row: int, ctrl: Array, reason: str, task: str, robot: str
) -> Path:
    """Write a world that just diverged under the controls `ctrl` [nu] to a new file, and return its path."""
    divergence = Divergence(
        task=task,
        robot=robot,
        reason=reason,
        ctrl=ctrl.tolist(),
        **{name: getattr(backend, name)[row].tolist() for name in ("qpos", "qvel", "mocap_pos")},
        model_fields={name: values[row].tolist() for name, values in backend.expanded_fields.items()},
    )
    dump_dir.mkdir(parents=True, exist_ok=True)
    path = dump_dir / f"divergence_{len(list(dump_dir.glob('divergence_*.json'))):06d}.json"
    path.write_text(json.dumps({"format": DIVERGENCE_FORMAT, **asdict(divergence)}))
    return path


def read_divergence(path: Path) -> Divergence:
    """Read a file of `write_divergence`. Raises `SimError`, which names the file, for any other content."""
    try:
        status = path.stat()  # a pipe has no end, a sparse file no blocks
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DUMP_BYTES:
            raise SimError(f"{path}: not a divergence dump of the simulator")
        content = json.loads(path.read_text())
        if content.pop("format") != DIVERGENCE_FORMAT:
            raise SimError(f"{path}: not a divergence dump of this version")
        divergence = Divergence(**content)
        text_fields = (divergence.task, divergence.robot, divergence.reason)
        if not (all(isinstance(text, str) for text in text_fields) and isinstance(divergence.model_fields, dict)):
            raise TypeError
        return divergence
    except OSError as error:
        raise SimError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise SimError(f"{path}: not a divergence dump of the simulator") from None


@dataclass(frozen=True, kw_only=True)
class DivergenceReplay:
    """Rendered replay of a divergence."""

    images: npt.NDArray[np.uint8]
    """uint8 [1 + T, V, H, W, 3]: the last valid state, then the state after each valid physics step."""
    reason: str | None  # reason of the divergence in the next physics step; None: the whole control step was valid


def replay_divergence(
    divergence: Divergence, task: Task, robot: Robot, *, views: Sequence[str], image_size: int, backend: str = "batch",
    device: str = "cpu", renderer: str = "auto",
) -> DivergenceReplay:  # fmt: skip
    """Restore a world from a dump and advance it by single physics steps.

    The caller passes task and robot: names in a dump may be file paths, and data never name code. Raises `SimError` if
    the dump is of another scene, or a view, backend, device or renderer is unknown.
    """
    model = build_scene(task.props, robot)
    rows, images = np.zeros(1, np.int64), []
    with closing(make_backend(backend, model, 1, threads=1, device=device)) as engine:
        divergence.apply_to(engine, 0)
        with closing(make_renderer(renderer, engine, views, image_size, threads=1)) as scene_renderer:
            images.append(scene_renderer.render(rows)[0])
            while len(images) <= SUBSTEPS_PER_STEP and not engine.step(1)[0]:
                images.append(scene_renderer.render(rows)[0])
        return DivergenceReplay(images=np.array(images), reason=engine.divergence_reasons().get(0))
