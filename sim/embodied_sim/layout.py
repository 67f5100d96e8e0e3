"""Start of an episode: poses, joints, colors, and the object and side that the instruction names."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from embodied_sim.control import FloatArray
from embodied_sim.palette import PALETTE
from embodied_sim.props import Fixture, Item, Prop

ITEM_START_BOUNDS_M = np.array([[0.36, -0.27], [0.54, -0.02]])
"""Lower and upper bounds of an item's start position x, y, m."""
MIN_ITEM_DISTANCE_M = 0.11  # minimum distance between the centers of two items at the start, m
TOOL_START_BOUNDS_M = np.array([[0.36, -0.14, 0.16], [0.5, 0.12, 0.25]])
"""Lower and upper bounds of the tool's start position, m."""
MAX_FIXTURE_OFFSET_M = 0.02  # maximum offset of a fixture from its nominal position along x and along y, m
MAX_ITEM_YAW_RAD = 0.3  # maximum yaw of an item, rad


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Start of one episode."""

    start_pose_index: int  # index into the bank of start poses
    item_poses: FloatArray  # [I, 3]: x, y (m) and yaw (rad) of each item, in the order of the task's items
    fixture_positions: FloatArray  # [F, 2]: x, y of each fixture, m
    joint_positions: Mapping[str, float]  # joint of a prop -> its start position, m or rad
    object_order: tuple[int, ...]  # index of the object in each role; the instruction names the first one
    colors: tuple[str, ...]  # color of each object, in the order of the task's objects
    side_index: int  # index of the target side; 0 for tasks without sides

    @property
    def scene_hash(self) -> str:
        """Return the SHA-256 of poses and colors; the instruction and the cameras do not change it."""
        digest = hashlib.sha256(self.item_poses.tobytes() + self.fixture_positions.tobytes())
        digest.update(repr((self.start_pose_index, sorted(self.joint_positions.items()), self.colors)).encode())
        return digest.hexdigest()


def sample_layout(
    props: Sequence[Prop], objects: Sequence[Prop], num_sides: int, num_start_poses: int, rng: np.random.Generator
) -> Layout:
    """Draw a layout: items apart from each other, fixtures near their places, joints in their start ranges."""
    items = [prop for prop in props if isinstance(prop, Item)]
    fixtures = [prop for prop in props if isinstance(prop, Fixture)]
    item_positions = _sample_item_positions(len(items), rng)
    start_pose = int(rng.integers(num_start_poses))
    yaw = rng.uniform(-MAX_ITEM_YAW_RAD, MAX_ITEM_YAW_RAD, len(items))
    fixture_positions = [
        np.array(f.nominal_xy) + rng.uniform(-MAX_FIXTURE_OFFSET_M, MAX_FIXTURE_OFFSET_M, 2) for f in fixtures
    ]
    joints = {name: float(rng.uniform(*limits)) for f in fixtures for name, limits in f.joint_start_ranges.items()}
    named_object = int(rng.integers(len(objects))) if objects else 0
    colors = sample_colors(objects, rng)
    return Layout(
        start_pose_index=start_pose,
        item_poses=np.column_stack([item_positions, yaw]),
        fixture_positions=np.array(fixture_positions).reshape(-1, 2),
        joint_positions=joints,
        object_order=(named_object, *(i for i in range(len(objects)) if i != named_object)) if objects else (),
        colors=colors,
        side_index=int(rng.integers(num_sides)) if num_sides else 0,
    )


def _sample_item_positions(count: int, rng: np.random.Generator) -> FloatArray:
    """Draw x, y of `count` items, [count, 2], m."""
    while True:
        xy = rng.uniform(ITEM_START_BOUNDS_M[0], ITEM_START_BOUNDS_M[1], size=(count, 2))
        distances = np.linalg.norm(xy[:, None] - xy[None], axis=2)[np.triu_indices(count, 1)]
        if (distances >= MIN_ITEM_DISTANCE_M).all():
            return xy


def sample_colors(objects: Sequence[Prop], rng: np.random.Generator) -> tuple[str, ...]:
    """Return the color of each object: its own, or a random color that no other object has."""
    fixed = {prop.color for prop in objects} - {None}
    available = [color for color in PALETTE if color not in fixed]
    sampled = iter(rng.permutation(available) if None in {prop.color for prop in objects} else ())
    return tuple(str(next(sampled)) if prop.color is None else prop.color for prop in objects)


def start_tool_positions(count: int) -> FloatArray:
    """Return evenly distributed tool positions [count, 3], m: the R3 low-discrepancy sequence (Roberts 2018)."""
    root = 1.2207440846057596
    lattice = (0.5 + np.outer(np.arange(1, count + 1), 1 / root ** np.arange(1, 4))) % 1.0
    return TOOL_START_BOUNDS_M[0] + lattice * (TOOL_START_BOUNDS_M[1] - TOOL_START_BOUNDS_M[0])
