"""What an environment is in the middle of, as arrays that a file can hold, and what goes on from there as it would."""

from __future__ import annotations

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


def add_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayDict:
    """The arrays under `prefix.name`."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def select_prefix(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayDict:
    """The arrays of a prefix, under their own names."""
    return {name.removeprefix(f"{prefix}."): array for name, array in arrays.items() if name.startswith(f"{prefix}.")}


def json_to_array(value: object) -> npt.NDArray[np.uint8]:
    """Anything that JSON can say, as bytes; numbers keep every digit."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def array_to_json(array: npt.NDArray[np.uint8]) -> Any:
    """What was packed."""
    return json.loads(bytes(array))


def pack_rngs(rngs: Iterable[np.random.Generator]) -> npt.NDArray[np.uint8]:
    """Random streams: where they are, and how many were spawned from them."""
    return json_to_array([{"state": rng.bit_generator.state, **_seed_info(rng)} for rng in rngs])


def unpack_rngs(array: npt.NDArray[np.uint8]) -> list[np.random.Generator]:
    """The streams, each of which goes on as the one that was packed."""
    return [_restore_rng(payload) for payload in array_to_json(array)]


def pack_layouts(layouts: Iterable[Layout]) -> npt.NDArray[np.uint8]:
    """How episodes started."""
    payloads = [{**asdict(layout), "items": layout.item_poses.tolist(), "fixtures": layout.fixture_positions.tolist()}
               for layout in layouts]  # fmt: skip
    return json_to_array(payloads)


def unpack_layouts(array: npt.NDArray[np.uint8]) -> list[Layout]:
    """The layouts that were packed."""

    def parse_layout(payload: dict[str, Any]) -> Layout:
        sizes = {"items": 3, "fixtures": 2}
        arrays = {name: np.array(payload[name]).reshape(-1, size) for name, size in sizes.items()}
        return Layout(**{**payload, **arrays, "order": tuple(payload["order"]), "colors": tuple(payload["colors"])})

    return [parse_layout(payload) for payload in array_to_json(array)]


def flatten_state(state: SceneState) -> ArrayDict:
    """The arrays of a scene's state; those of its mappings by the names there."""
    arrays: ArrayDict = {}
    for field in fields(state):
        value = getattr(state, field.name)
        arrays |= add_prefix(field.name, value) if isinstance(value, Mapping) else {field.name: value}
    return arrays


def unflatten_state(arrays: Mapping[str, npt.NDArray[Any]]) -> SceneState:
    """The state whose arrays these are."""
    mappings = {name: select_prefix(name, arrays) for name in ("points", "joints")}
    return SceneState(**{f.name: mappings.get(f.name, arrays.get(f.name)) for f in fields(SceneState)})  # type: ignore[arg-type]


def check_same_env(current: Mapping[str, npt.NDArray[Any]], snapshot: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise `SimError` unless two snapshots are of environments alike: of the same, all numbers there, and as many."""
    numeric = {name: array for name, array in current.items() if array.dtype != np.uint8}
    same_shapes = all(name in snapshot and array.shape == snapshot[name].shape for name, array in numeric.items())
    if not same_shapes or not np.array_equal(current["of"], snapshot["of"]):
        raise SimError("the snapshot is of another environment: task, robot, num_envs, randomisation must be the same")


def _seed_info(rng: np.random.Generator) -> dict[str, Any]:
    seed: Any = rng.bit_generator.seed_seq
    return {"entropy": seed.entropy, "spawn_key": list(seed.spawn_key), "spawned": seed.n_children_spawned}


def _restore_rng(payload: Mapping[str, Any]) -> np.random.Generator:
    seed = np.random.SeedSequence(
        payload["entropy"], spawn_key=tuple(payload["spawn_key"]), n_children_spawned=payload["spawned"]
    )
    rng = np.random.Generator(np.random.PCG64(seed))
    rng.bit_generator.state = payload["state"]
    return rng
