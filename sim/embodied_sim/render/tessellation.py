"""Round shapes as meshes with no more facets than a small image can show.

MuJoCo's OpenGL draws every sphere, capsule and cylinder with one count of facets, the sides of tubes in as many rings
as the caps: on a software rasteriser, vertices are what a small image costs.
"""

from __future__ import annotations

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
MIN_SLICES = 8
"""Facets around the thinnest shape."""


def slices_for_radii(radius: FloatArray, max_slices: int) -> IntArray:
    """Facets around shapes of these radii: `most` around the thickest, for the others so many that all polygons leave
    their circles equally far."""
    fraction = np.sqrt(radius / max(float(radius.max(initial=0)), 1e-9))
    return np.maximum(np.rint(max_slices * fraction), MIN_SLICES).astype(np.int64)


def mean_radius_factor(slices: int) -> float:
    """By what a polygon inside its circle is widened, to leave it as far outwards as inwards.

    One that lies wholly inside makes every outline too thin, which costs 2 dB of PSNR against a ray tracer.
    """
    return float(2 / (1 + np.cos(np.pi / slices)))


def make_mesh(kind: int, size: FloatArray, slices: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Vertices [P, 3], their normals [P, 3] and triangles [F, 3] of a sphere, capsule or cylinder along z.

    `size` as in MuJoCo: radius, half length (without the caps).
    """
    radius, half_length = size[0] * mean_radius_factor(slices), 0.0 if kind == SPHERE else float(size[1])
    profile = (
        _cylinder_profile(radius, half_length)
        if kind == CYLINDER
        else _capsule_profile(radius, half_length, max(slices // 4, 2))
    )
    return _revolve(*profile, slices)


def _capsule_profile(radius: float, half_length: float, rings: int) -> tuple[FloatArray, FloatArray]:
    """The outline of a capsule from pole to pole as distance from the axis and height [R, 2], and its normals."""
    angle = np.linspace(0, np.pi / 2, rings + 1)
    normal = np.column_stack([np.sin(angle), -np.cos(angle)])
    lower = radius * normal - [0, half_length]
    upward = normal[::-1] * [1, -1]
    upper = radius * upward + [0, half_length]
    if half_length == 0:
        upper, upward = upper[1:], upward[1:]
    return np.concatenate([lower, upper]), np.concatenate([normal, upward])


def _cylinder_profile(radius: float, half_length: float) -> tuple[FloatArray, FloatArray]:
    """Likewise of a cylinder; its edges are there twice, with the normal of either side."""
    outline = np.array(
        [
            [0, -half_length],
            [radius, -half_length],
            [radius, -half_length],
            [radius, half_length],
            [radius, half_length],
            [0, half_length],
        ]
    )
    normal = np.array([[0, -1], [0, -1], [1, 0], [1, 0], [0, 1], [0, 1]], np.float64)
    return outline, normal


def _revolve(outline: FloatArray, normal: FloatArray, slices: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """The surface that an outline [R, 2] (distance from the axis, height) makes around the z axis.

    Rings nearer to the axis than the widest get fewer vertices, so that all leave their circles equally far.
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
    """Triangles [F, 3] between a ring of `below` vertices, numbered from `low`, and one of `above`, from `high`: around
    both at once, on where the next vertex comes first."""
    faces, i, j = [], 0, 0
    while i < num_lower * (num_lower > 1) or j < num_upper * (num_upper > 1):
        if num_lower > 1 and (num_upper == 1 or (i + 1) * num_upper <= (j + 1) * num_lower):
            faces.append((first_lower + i % num_lower, first_lower + (i + 1) % num_lower, first_upper + j % num_upper))
            i += 1
        else:
            faces.append((first_lower + i % num_lower, first_upper + (j + 1) % num_upper, first_upper + j % num_upper))
            j += 1
    return np.array(faces)
