"""Meshes of round shapes with no more facets than a small image can show.

MuJoCo draws all round shapes with the same number of facets, and the sides of tubes in as many rings as the caps. In a
software rasterizer, vertices dominate the cost of a small image.
"""

from itertools import pairwise

import mujoco
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SPHERE, CAPSULE, CYLINDER = (
    int(kind) for kind in (mujoco.mjtGeom.mjGEOM_SPHERE, mujoco.mjtGeom.mjGEOM_CAPSULE, mujoco.mjtGeom.mjGEOM_CYLINDER)
)
ROUND_GEOM_TYPES = (SPHERE, CAPSULE, CYLINDER)
MIN_SLICES = 8  # minimum facets around a shape


def slices_for_radii(radius: FloatArray, max_slices: int) -> IntArray:
    """Return the facets around shapes of these radii, `max_slices` around the thickest: all deviate equally."""
    fraction = np.sqrt(radius / max(float(radius.max(initial=0)), 1e-9))
    return np.maximum(np.rint(max_slices * fraction), MIN_SLICES).astype(np.int64)


def mean_radius_factor(slices: int) -> float:
    """Return the factor that widens an inscribed polygon, so that it deviates equally outward and inward.

    Without it every outline is too thin, which costs 2 dB of PSNR against a ray tracer.
    """
    return float(2 / (1 + np.cos(np.pi / slices)))


def make_mesh(kind: int, size: FloatArray, slices: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Build the mesh of a sphere, capsule or cylinder along z, with `slices` facets around the axis.

    `size` is as in MuJoCo: radius, half length without the caps, m. Returns vertices [P, 3], their normals [P, 3] and
    triangles [F, 3].
    """
    radius, half_length = size[0] * mean_radius_factor(slices), 0.0 if kind == SPHERE else float(size[1])
    if kind == CYLINDER:
        return _revolve(*_cylinder_profile(radius, half_length), slices)
    return _revolve(*_capsule_profile(radius, half_length, max(slices // 4, 2)), slices)


def _capsule_profile(radius: float, half_length: float, rings: int) -> tuple[FloatArray, FloatArray]:
    """Return the outline of a capsule from pole to pole [R, 2] (distance from the axis, height) and its normals."""
    angle = np.linspace(0, np.pi / 2, rings + 1)
    normal = np.column_stack([np.sin(angle), -np.cos(angle)])
    lower = radius * normal - [0, half_length]
    upward = normal[::-1] * [1, -1]
    upper = radius * upward + [0, half_length]
    if half_length == 0:
        upper, upward = upper[1:], upward[1:]
    return np.concatenate([lower, upper]), np.concatenate([normal, upward])


def _cylinder_profile(radius: float, half_length: float) -> tuple[FloatArray, FloatArray]:
    """Return the outline of a cylinder and its normals; edges appear twice, with the normal of either side."""
    lower, upper = (radius, -half_length), (radius, half_length)
    outline = np.array([(0, -half_length), lower, lower, upper, upper, (0, half_length)])
    normal = np.array([[0, -1], [0, -1], [1, 0], [1, 0], [0, 1], [0, 1]], np.float64)
    return outline, normal


def _revolve(outline: FloatArray, normal: FloatArray, slices: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Rotate an outline [R, 2] (distance from the axis, height) around the z axis.

    Narrower rings have fewer vertices, so that all rings deviate equally from their circles.
    """
    fraction = np.sqrt(outline[:, 0] / outline[:, 0].max())
    counts = np.maximum(np.rint(slices * fraction), np.where(fraction > 0, 3, 1)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    ring_angles = [2 * np.pi * np.arange(count) / count for count in counts]

    def revolve(pairs: FloatArray) -> FloatArray:
        return np.concatenate([
            np.column_stack([distance * np.cos(angles), distance * np.sin(angles), np.full(len(angles), height)])
            for (distance, height), angles in zip(pairs, ring_angles, strict=True)
        ])  # fmt: skip

    faces = [
        _ring_faces(starts[ring], counts[ring], starts[ring + 1], counts[ring + 1])
        for ring, (lower, upper) in enumerate(pairwise(outline))
        if not np.array_equal(lower, upper)
    ]
    return revolve(outline), revolve(normal), np.concatenate(faces)


def _ring_faces(first_lower: int, num_lower: int, first_upper: int, num_upper: int) -> IntArray:
    """Return the triangles [F, 3] between two rings, given the first index and the number of vertices of each.

    The walk advances on the ring whose next vertex comes first.
    """
    faces, i, j = [], 0, 0
    while i < num_lower * (num_lower > 1) or j < num_upper * (num_upper > 1):
        if num_lower > 1 and (num_upper == 1 or (i + 1) * num_upper <= (j + 1) * num_lower):
            faces.append((first_lower + i % num_lower, first_lower + (i + 1) % num_lower, first_upper + j % num_upper))
            i += 1
        else:
            faces.append((first_lower + i % num_lower, first_upper + (j + 1) % num_upper, first_upper + j % num_upper))
            j += 1
    return np.array(faces)
