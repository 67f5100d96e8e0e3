"""What an environment is in the middle of, as arrays that a file can hold, and what goes on from there as it would."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.errors import SimError
from sim.layout import Layout
from sim.state import SceneState

Arrays = dict[str, npt.NDArray[Any]]


def prefixed(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The arrays under `prefix.name`."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def under(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The arrays of a prefix, under their own names."""
    return {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}


def packed(value: object) -> npt.NDArray[np.uint8]:
    """Anything that JSON can say, as bytes; numbers keep every digit."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def unpacked(array: npt.NDArray[np.uint8]) -> Any:
    """What was packed."""
    return json.loads(bytes(array))


def streams_of(rngs: Iterable[np.random.Generator]) -> npt.NDArray[np.uint8]:
    """Random streams: where they are, and how many were spawned from them."""
    return packed([{"state": rng.bit_generator.state, **_seed(rng)} for rng in rngs])


def streams_from(array: npt.NDArray[np.uint8]) -> list[np.random.Generator]:
    """The streams, each of which goes on as the one that was packed."""
    return [_stream(told) for told in unpacked(array)]


def layouts_of(layouts: Iterable[Layout]) -> npt.NDArray[np.uint8]:
    """How episodes started."""
    as_text = [{**asdict(layout), "items": layout.items.tolist(), "fixtures": layout.fixtures.tolist()}
               for layout in layouts]  # fmt: skip
    return packed(as_text)


def layouts_from(array: npt.NDArray[np.uint8]) -> list[Layout]:
    """The layouts that were packed."""

    def read(told: dict[str, Any]) -> Layout:
        sizes = {"items": 3, "fixtures": 2}
        places = {name: np.array(told[name]).reshape(-1, size) for name, size in sizes.items()}
        return Layout(**{**told, **places, "order": tuple(told["order"]), "colours": tuple(told["colours"])})

    return [read(told) for told in unpacked(array)]


def state_of(state: SceneState) -> Arrays:
    """The arrays of a scene's state; those of its mappings by the names there."""
    arrays: Arrays = {}
    for field in fields(state):
        value = getattr(state, field.name)
        arrays |= prefixed(field.name, value) if isinstance(value, Mapping) else {field.name: value}
    return arrays


def state_from(arrays: Mapping[str, npt.NDArray[Any]]) -> SceneState:
    """The state whose arrays these are."""
    mappings = {name: under(name, arrays) for name in ("points", "joints")}
    return SceneState(**{f.name: mappings.get(f.name, arrays.get(f.name)) for f in fields(SceneState)})  # type: ignore[arg-type]


def refuse_other(now: Mapping[str, npt.NDArray[Any]], then: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise `SimError` unless two snapshots are of environments alike: of the same, all numbers there, and as many."""
    numbers = {name: array for name, array in now.items() if array.dtype != np.uint8}
    alike = all(name in then and array.shape == then[name].shape for name, array in numbers.items())
    if not alike or not np.array_equal(now["of"], then["of"]):
        raise SimError("the snapshot is of another environment: task, robot, num_envs, randomisation must be the same")


def _seed(rng: np.random.Generator) -> dict[str, Any]:
    seed: Any = rng.bit_generator.seed_seq
    return {"entropy": seed.entropy, "spawn_key": list(seed.spawn_key), "spawned": seed.n_children_spawned}


def _stream(told: Mapping[str, Any]) -> np.random.Generator:
    seed = np.random.SeedSequence(
        told["entropy"], spawn_key=tuple(told["spawn_key"]), n_children_spawned=told["spawned"]
    )
    rng = np.random.Generator(np.random.PCG64(seed))
    rng.bit_generator.state = told["state"]
    return rng
