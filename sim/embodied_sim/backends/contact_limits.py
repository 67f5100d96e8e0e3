"""Contact limits of mujoco_warp, which allocates memory in advance and drops contacts that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import mujoco
import numpy as np
from mujoco_warp import OverflowType

from embodied_sim.sim_errors import SimError

CONTACTS_PER_BODY = 12
"""Default contacts per moving body. The experts of the tabletop tasks reach 147 constraints in a world of 6 moving
bodies, a third of the resulting limit."""

_CONTACT_FLAGS = OverflowType.BROADPHASE | OverflowType.NARROWPHASE | OverflowType.CCD | OverflowType.HFIELD


@dataclass(frozen=True)
class ContactLimits:
    """Limits per world: contacts on average over the worlds, constraints at most."""

    max_contacts: int
    """Shared pool: N worlds have N times as many. A contact of two boxes counts up to 8."""
    max_constraints: int  # solver rows: a contact takes 2 (condim - 1); a limit, dry friction or equality one or more

    OVERFLOW_FLAGS: ClassVar[int] = int(_CONTACT_FLAGS | OverflowType.NEFC | OverflowType.NJMAX_NNZ)
    """Flags of `Data.overflow` that mean that contacts were dropped."""

    @classmethod
    def from_model(cls, model: mujoco.MjModel, max_contacts: int = 0) -> ContactLimits:
        """Choose the limits of a model. Raises `SimError` if `max_contacts` is negative.

        `max_contacts` are those per world; 0: ample for a tabletop, and at least the number of geom pairs, so that the
        broad phase cannot overflow.
        """
        if max_contacts < 0:
            raise SimError(f"max_contacts must be >= 0, got {max_contacts}")
        pairs = list(_collision_pairs(model))
        bodies = {int(body) for pair in pairs for body in model.body_weldid[model.geom_bodyid[list(pair)]]}
        rows_per_contact = 2 * (int(model.geom_condim.max(initial=3)) - 1)
        other_rows = 6 * model.neq + 2 * model.nv + 2 * model.ntendon
        default_contacts = CONTACTS_PER_BODY * max(len(bodies - {0}), 1)
        max_constraints = other_rows + rows_per_contact * (max_contacts or default_contacts)
        return cls(max_contacts or max(len(pairs), default_contacts), max_constraints)

    def overflow_message(self, flags: int) -> str:
        """Return the message for a world with these flags of `Data.overflow`."""
        is_contact = flags & _CONTACT_FLAGS
        exceeded = f"max_contacts={self.max_contacts}" if is_contact else f"max_constraints={self.max_constraints}"
        remedy = f"set max_contacts (env.max_contacts on the command line) to more than {self.max_contacts}"
        return f"more than {exceeded} per world: {remedy}"


def _collision_pairs(model: mujoco.MjModel) -> Iterator[tuple[int, int]]:
    """Yield pairs of geoms that can collide, by MuJoCo's rules for bit masks and for welded or parent-child bodies."""
    weld = model.body_weldid[model.geom_bodyid]
    parent = model.body_weldid[model.body_parentid[weld]]
    bits, masks = model.geom_contype, model.geom_conaffinity
    for a, b in zip(*np.triu_indices(model.ngeom, 1), strict=True):
        enabled = bits[a] & masks[b] or bits[b] & masks[a]
        parent_child = weld[a] and weld[b] and (weld[a] == parent[b] or weld[b] == parent[a])
        if enabled and weld[a] != weld[b] and not parent_child:
            yield int(a), int(b)
