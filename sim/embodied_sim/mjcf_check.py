"""Compile an untrusted MuJoCo XML file in a child process, with limits on time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np

from embodied_sim.sim_errors import SimError

CHILD_SCRIPT = """import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
from embodied_sim.mjcf_check import print_problem
print_problem(sys.argv[1])"""
"""Limits its memory before it imports anything else."""
COMPILE_TIMEOUT_S, MAX_MEMORY_BYTES = 60, 4 << 30  # limits of the compilation
MAX_MODEL_SIZES = {"nbody": 500, "ngeom": 2000, "nv": 500}  # largest models that the simulator steps at a useful rate
TIMESTEP_RANGE_S = (1e-4, 0.02)  # shortest and longest time step, s


def check_mjcf(path: Path) -> None:
    """Raise `SimError`, in one sentence that names the file, unless MuJoCo compiles it within the limits."""
    if not path.is_file():
        raise SimError(f"{path}: there is no such file")
    command = [sys.executable, "-c", CHILD_SCRIPT, str(path.resolve()), str(MAX_MEMORY_BYTES)]
    folder = Path(__file__).resolve().parents[1]
    try:
        child = subprocess.run(
            command, capture_output=True, timeout=COMPILE_TIMEOUT_S, check=False, text=True, cwd=folder
        )
    except subprocess.TimeoutExpired:
        raise SimError(f"{path}: it did not compile within {COMPILE_TIMEOUT_S} s") from None
    if child.returncode != 0 or not child.stdout.strip():
        raise SimError(f"{path}: compiling it ended in a crash, or needed more than {MAX_MEMORY_BYTES >> 30} GiB")
    if problem := json.loads(child.stdout.splitlines()[-1]):
        raise SimError(f"{path}: {problem}")


def find_problem(path: str) -> str | None:
    """Return the first problem of the file, or None."""
    try:
        model = mujoco.MjModel.from_xml_path(path)
    except ValueError as error:
        return str(error).splitlines()[0]
    for name, limit in MAX_MODEL_SIZES.items():
        if getattr(model, name) > limit:
            return f"{name} is {getattr(model, name)}, at most {limit} is supported"
    low, high = TIMESTEP_RANGE_S
    if not low <= model.opt.timestep <= high:
        return f"the time step is {model.opt.timestep:g} s, it must be between {low:g} and {high:g}"
    for name in ("qpos0", "body_mass", "body_pos", "geom_size", "jnt_range"):
        if not np.isfinite(getattr(model, name)).all():
            return f"{name} holds numbers that are not finite"
    return None


def print_problem(path: str) -> None:
    """Print the first problem of the file as JSON; entry point of the child process."""
    sys.stdout.write(json.dumps(find_problem(path)))
