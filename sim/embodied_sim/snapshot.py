"""Snapshots of an environment as arrays that a file can store."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from embodied_sim.layout import Layout
from embodied_sim.sim_errors import SimError
from embodied_sim.state import SceneState

ArrayDict = dict[str, npt.NDArray[Any]]
WHOLE_ARRAYS, STEP_FIRST_ARRAYS = ("env_spec",), ("action_delay.history",)
"""Arrays of all rows together, and arrays [steps, rows, ...]. The others are [rows, ...] or JSON lists of rows."""


def add_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayDict:
    """Return the arrays under the names `prefix.name`."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def select_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayDict:
    """Return the arrays with a prefix, under their names without it."""
    return {name.removeprefix(f"{prefix}."): array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def json_to_array(value: object) -> npt.NDArray[np.uint8]:
    """Encode a JSON value, or arrays, as bytes; numbers keep every digit."""
    return np.frombuffer(json.dumps(value, default=np.ndarray.tolist).encode(), np.uint8)


def array_to_json(array: npt.NDArray[np.uint8]) -> Any:
    """Decode `json_to_array`."""
    return json.loads(bytes(array))


def pack_rngs(rngs: Iterable[np.random.Generator]) -> npt.NDArray[np.uint8]:
    """Encode random generators: their states and the numbers of spawned children."""
    return json_to_array([{"state": rng.bit_generator.state, **_seed_info(rng)} for rng in rngs])


def unpack_rngs(array: npt.NDArray[np.uint8]) -> list[np.random.Generator]:
    """Decode `pack_rngs`; each generator continues as the encoded one."""
    return [_restore_rng(payload) for payload in array_to_json(array)]


def pack_layouts(layouts: Iterable[Layout]) -> npt.NDArray[np.uint8]:
    """Encode layouts."""
    return json_to_array([asdict(layout) for layout in layouts])


def unpack_layouts(array: npt.NDArray[np.uint8]) -> list[Layout]:
    """Decode `pack_layouts`."""

    def parse_layout(payload: dict[str, Any]) -> Layout:
        sizes = {"item_poses": 3, "fixture_positions": 2}
        arrays = {name: np.array(payload[name]).reshape(-1, size) for name, size in sizes.items()}
        tuples = {name: tuple(payload[name]) for name in ("object_order", "colors")}
        return Layout(**{**payload, **arrays, **tuples})

    return [parse_layout(payload) for payload in array_to_json(array)]


def flatten_state(state: SceneState) -> ArrayDict:
    """Return the arrays of a scene state by name; entries of mappings are `field.name`."""
    arrays: ArrayDict = {}
    for field in fields(state):
        value = getattr(state, field.name)
        arrays |= add_prefix(field.name, value) if isinstance(value, Mapping) else {field.name: value}
    return arrays


def unflatten_state(arrays: Mapping[str, npt.NDArray[Any]]) -> SceneState:
    """Invert `flatten_state`."""
    mappings = {name: select_prefix(name, arrays) for name in ("points", "joints")}
    return SceneState(**{f.name: mappings.get(f.name, arrays.get(f.name)) for f in fields(SceneState)})  # type: ignore[arg-type]


def check_same_env(current: Mapping[str, npt.NDArray[Any]], snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise `SimError` unless both snapshots have the same arrays, shapes, task and robot."""
    numeric = {name: array for name, array in current.items() if array.dtype != np.uint8}
    same_shapes = all(name in snapshot and array.shape == snapshot[name].shape for name, array in numeric.items())
    if not same_shapes or not np.array_equal(current["env_spec"], snapshot["env_spec"]):
        raise SimError(
            "the snapshot is of another environment: task, robot, num_envs and randomization must be the same"
        )


def _seed_info(rng: np.random.Generator) -> dict[str, Any]:
    seed: Any = rng.bit_generator.seed_seq
    return {"entropy": seed.entropy, "spawn_key": list(seed.spawn_key), "num_spawned": seed.n_children_spawned}


def _restore_rng(payload: Mapping[str, Any]) -> np.random.Generator:
    seed = np.random.SeedSequence(
        payload["entropy"], spawn_key=tuple(payload["spawn_key"]), n_children_spawned=payload["num_spawned"]
    )
    rng = np.random.Generator(np.random.PCG64(seed))
    rng.bit_generator.state = payload["state"]
    return rng


def take_rows(snapshot: Mapping[str, npt.NDArray[Any]], rows: npt.NDArray[np.int64]) -> ArrayDict:
    """Return the snapshot of an environment whose row i is in the state of row `rows[i]`, for any number of rows."""
    return {name: _take(name, array, rows) for name, array in snapshot.items()}


def _take(name: str, array: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    if name in WHOLE_ARRAYS:
        return array
    if array.dtype == np.uint8:
        payloads = array_to_json(array)
        return json_to_array([payloads[row] for row in rows])
    return array.take(rows, axis=1 if name in STEP_FIRST_ARRAYS else 0)


def set_row(arrays: ArrayDict, row: int, other: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put one row of arrays of numbers into the state of a snapshot of one row."""
    for name, array in arrays.items():
        if name in STEP_FIRST_ARRAYS:
            array[:, row] = other[name][:, 0]
        else:
            array[row] = other[name][0]
