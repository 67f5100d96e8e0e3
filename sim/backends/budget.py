"""Room for contacts: mujoco_warp allocates it beforehand and drops what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from mujoco_warp import OverflowType

from sim.errors import SimError

CONTACTS_A_BODY = 12
"""For which a moving body gets room in the solver. Measured with the experts of the tabletop tasks: 147 constraints at
most in a world of 6 moving bodies, a third of what this leaves room for."""

_CONTACTS = OverflowType.BROADPHASE | OverflowType.NARROWPHASE | OverflowType.CCD | OverflowType.HFIELD


@dataclass(frozen=True)
class Budget:
    """How much a world may have on average (contacts) and at most (constraints)."""

    contacts: int
    """Shared: N worlds have room for N times as many. A contact of two boxes counts up to 8."""
    constraints: int
    """Rows of the solver: a contact takes 2 (condim - 1), a limit, dry friction or equality one or more."""

    DROPPED: ClassVar[int] = int(_CONTACTS | OverflowType.NEFC | OverflowType.NJMAX_NNZ)
    """The flags of `Data.overflow` which say that something that touches was left out."""

    @classmethod
    def of(cls, model: mujoco.MjModel, contacts: int = 0) -> Budget:
        """Room for so many contacts a world, in the solver too; 0: ample for things on a table, and as many as pairs
        of geoms, so that the broad phase cannot overflow. Raises `SimError` for less than 0."""
        if contacts < 0:
            raise SimError(f"contacts must be >= 0, got {contacts}")
        pairs = list(_pairs(model))
        touching = {int(body) for pair in pairs for body in model.body_weldid[model.geom_bodyid[list(pair)]]} - {0}
        rows = 2 * (int(model.geom_condim.max(initial=3)) - 1)
        others = 6 * model.neq + 2 * model.nv + 2 * model.ntendon
        ample = CONTACTS_A_BODY * max(len(touching), 1)
        return cls(contacts or max(len(pairs), ample), others + rows * (contacts or ample))

    def exceeded(self, flags: int) -> str:
        """What to say of a world with these flags of `Data.overflow`."""
        if flags & _CONTACTS:
            what, number = "contacts", self.contacts
        else:
            what, number = "constraints", self.constraints
        remedy = f"set contacts (world.contacts on the command line) to more than {self.contacts}"
        return f"more {what} than the room for {number} a world: {remedy}"


def _pairs(model: mujoco.MjModel) -> Iterator[tuple[int, int]]:
    """Pairs of geoms that can touch, by MuJoCo's rules for bits and for bodies that are welded or parent and child."""
    weld = model.body_weldid[model.geom_bodyid]
    parent = model.body_weldid[model.body_parentid[weld]]
    bits, masks = model.geom_contype, model.geom_conaffinity
    for a, b in zip(*np.triu_indices(model.ngeom, 1), strict=True):
        meant = bits[a] & masks[b] or bits[b] & masks[a]
        family = weld[a] and weld[b] and (weld[a] == parent[b] or weld[b] == parent[a])
        if meant and weld[a] != weld[b] and not family:
            yield int(a), int(b)
