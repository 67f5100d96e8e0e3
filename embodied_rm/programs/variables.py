"""What a reward program can read: the variables of a scene, with shape, unit and meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

NUMBER, POINT = 0, 3
"""Number of components of a value per environment: none for a number, x, y and z for a point."""
START_PREFIX = "start_"
"""Before the name of a variable: its value at the start of the episode."""


@dataclass(frozen=True, kw_only=True)
class Variable:
    """One input of a program."""

    size: int  # `NUMBER`, or the number of components of a vector
    unit: str  # m, rad or "" (none)
    meaning: str


def with_start_values(variables: Mapping[str, Variable]) -> dict[str, Variable]:
    """Return the variables, and for each its value at the start of the episode."""
    at_start = {
        START_PREFIX + name: Variable(size=v.size, unit=v.unit, meaning=f"{name} at the start of the episode")
        for name, v in variables.items()
    }
    return {**variables, **at_start}


def describe_size(size: int) -> str:
    """Return in words what a value with that many components is."""
    return f"vector of {size} components" if size else "number"
