"""Room for contacts: mujoco_warp allocates it beforehand and drops what does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from mujoco_warp import OverflowType

from embodied_sim.sim_errors import SimError

CONTACTS_PER_BODY = 12
"""For which a moving body gets room in the solver. Measured with the experts of the tabletop tasks: 147 constraints at
most in a world of 6 moving bodies, a third of what this leaves room for."""

_CONTACT_FLAGS = OverflowType.BROADPHASE | OverflowType.NARROWPHASE | OverflowType.CCD | OverflowType.HFIELD


@dataclass(frozen=True)
class ContactLimits:
    """How much a world may have on average (contacts) and at most (constraints)."""

    max_contacts: int
    """Shared: N worlds have room for N times as many. A contact of two boxes counts up to 8."""
    max_constraints: int
    """Rows of the solver: a contact takes 2 (condim - 1), a limit, dry friction or equality one or more."""

    OVERFLOW_FLAGS: ClassVar[int] = int(_CONTACT_FLAGS | OverflowType.NEFC | OverflowType.NJMAX_NNZ)
    """The flags of `Data.overflow` which say that something that touches was left out."""

    @classmethod
    def from_model(cls, model: mujoco.MjModel, max_contacts: int = 0) -> ContactLimits:
        """Room for so many contacts a world, in the solver too; 0: ample for things on a table, and as many as pairs
        of geoms, so that the broad phase cannot overflow. Raises `SimError` for less than 0."""
        if max_contacts < 0:
            raise SimError(f"contacts must be >= 0, got {max_contacts}")
        pairs = list(_collision_pairs(model))
        colliding_bodies = {
            int(body) for pair in pairs for body in model.body_weldid[model.geom_bodyid[list(pair)]]
        } - {0}
        rows_per_contact = 2 * (int(model.geom_condim.max(initial=3)) - 1)
        other_rows = 6 * model.neq + 2 * model.nv + 2 * model.ntendon
        default_contacts = CONTACTS_PER_BODY * max(len(colliding_bodies), 1)
        return cls(
            max_contacts or max(len(pairs), default_contacts),
            other_rows + rows_per_contact * (max_contacts or default_contacts),
        )

    def overflow_message(self, flags: int) -> str:
        """What to say of a world with these flags of `Data.overflow`."""
        if flags & _CONTACT_FLAGS:
            quantity, limit = "max_contacts", self.max_contacts
        else:
            quantity, limit = "max_constraints", self.max_constraints
        remedy = f"set contacts (world.contacts on the command line) to more than {self.max_contacts}"
        return f"more {quantity} than the room for {limit} a world: {remedy}"


def _collision_pairs(model: mujoco.MjModel) -> Iterator[tuple[int, int]]:
    """Pairs of geoms that can touch, by MuJoCo's rules for bits and for bodies that are welded or parent and child."""
    weld = model.body_weldid[model.geom_bodyid]
    parent = model.body_weldid[model.body_parentid[weld]]
    bits, masks = model.geom_contype, model.geom_conaffinity
    for a, b in zip(*np.triu_indices(model.ngeom, 1), strict=True):
        enabled = bits[a] & masks[b] or bits[b] & masks[a]
        parent_child = weld[a] and weld[b] and (weld[a] == parent[b] or weld[b] == parent[a])
        if enabled and weld[a] != weld[b] and not parent_child:
            yield int(a), int(b)
