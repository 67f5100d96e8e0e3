"""How an episode starts and what it is about: places, joints, colours, and which thing the instruction names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.control import FloatArray
from sim.props import Fixture, Item, Prop
from sim.props.base import PALETTE

ITEM_AREA = np.array([[0.36, -0.27], [0.54, -0.02]])
"""Lowest and highest x, y at which an item may start, m."""
ITEM_GAP = 0.11
"""Least distance between the middles of two items at the start, m."""
START_AREA = np.array([[0.36, -0.14, 0.16], [0.5, 0.12, 0.25]])
"""Lowest and highest tool position at which an episode may start, m."""
FIXTURE_SPREAD = 0.02
"""How far a fixture may stand from its nominal place along x and along y, m."""
YAW_SPREAD = 0.3
"""Largest turn of an item about the vertical, rad."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The start of one episode in one world."""

    start_pose: int
    """Index into the bank of start poses."""
    items: FloatArray
    """[I, 3]: x, y (m) and yaw (rad) of each item, in the order of the task's items."""
    fixtures: FloatArray
    """[F, 2]: x, y of each fixture, m."""
    joints: Mapping[str, float]
    """Joint of a prop -> where it starts."""
    order: tuple[int, ...]
    """Index of the object in each role; the first one is what the instruction names."""
    colours: tuple[str, ...]
    """Colour of each object, in the order of the task's objects."""
    side: int
    """Which of the task's sides is meant; 0 where it has none."""

    @property
    def scene(self) -> str:
        """SHA-256 of where everything stands and in which colours, whatever is asked and whoever looks."""
        digest = hashlib.sha256(self.items.tobytes() + self.fixtures.tobytes())
        digest.update(repr((self.start_pose, sorted(self.joints.items()), self.colours)).encode())
        return digest.hexdigest()


def sample_layout(
    props: Sequence[Prop], objects: Sequence[Prop], sides: int, start_poses: int, rng: np.random.Generator
) -> Layout:
    """A random start: items apart from each other, fixtures near their places, joints in their starting ranges."""
    items = [prop for prop in props if isinstance(prop, Item)]
    fixtures = [prop for prop in props if isinstance(prop, Fixture)]
    places = _places(len(items), rng)
    start_pose = int(rng.integers(start_poses))
    yaw = rng.uniform(-YAW_SPREAD, YAW_SPREAD, len(items))
    spread = [np.array(f.place) + rng.uniform(-FIXTURE_SPREAD, FIXTURE_SPREAD, 2) for f in fixtures]
    joints = {name: float(rng.uniform(*limits)) for f in fixtures for name, limits in f.starts.items()}
    named = int(rng.integers(len(objects))) if objects else 0
    colours = draw_colours(objects, rng)
    return Layout(
        start_pose=start_pose,
        items=np.column_stack([places, yaw]),
        fixtures=np.array(spread).reshape(-1, 2),
        joints=joints,
        order=(named, *(i for i in range(len(objects)) if i != named)) if objects else (),
        colours=colours,
        side=int(rng.integers(sides)) if sides else 0,
    )


def _places(count: int, rng: np.random.Generator) -> FloatArray:
    """x, y of `count` items, [count, 2]."""
    while True:
        xy = rng.uniform(ITEM_AREA[0], ITEM_AREA[1], size=(count, 2))
        apart = np.linalg.norm(xy[:, None] - xy[None], axis=2)[np.triu_indices(count, 1)]
        if (apart >= ITEM_GAP).all():
            return xy


def draw_colours(objects: Sequence[Prop], rng: np.random.Generator) -> tuple[str, ...]:
    """The colour of each object: its own, or one that no other object has."""
    taken = {prop.colour for prop in objects} - {None}
    free = [colour for colour in PALETTE if colour not in taken]
    drawn = iter(rng.permutation(free) if None in {prop.colour for prop in objects} else ())
    return tuple(str(next(drawn)) if prop.colour is None else prop.colour for prop in objects)


def start_positions(count: int) -> FloatArray:
    """Tool positions spread evenly over the start area: the R3 low-discrepancy sequence (Roberts 2018), [count, 3]."""
    root = 1.2207440846057596
    lattice = (0.5 + np.outer(np.arange(1, count + 1), 1 / root ** np.arange(1, 4))) % 1.0
    return START_AREA[0] + lattice * (START_AREA[1] - START_AREA[0])
