"""What a reward program may compute: operators and functions of arrays, one row per environment."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from embodied_rm.rewards.transitions import FloatArray

BINARY_OPERATORS: Mapping[type[ast.operator], np.ufunc] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
COMPARISONS: Mapping[type[ast.cmpop], np.ufunc] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function that programs may call."""

    compute: Callable[..., FloatArray]
    meaning: str  # for the person or model that writes a program
    operands: Literal["numbers", "vectors", "any", "choice"] = "numbers"
    """vectors: the result is a number. any: each component alone. choice: a condition, and two values of one size."""
    min_count: int = 1  # smallest number of arguments
    step: int | None = None  # further arguments come in this number; None: there are none

    def accepts(self, count: int) -> bool:
        """Return whether it may have that many arguments."""
        further = count - self.min_count
        return further >= 0 and (further % self.step == 0 if self.step else further == 0)


def norm(vector: FloatArray) -> FloatArray:
    """Return the Euclidean length of vectors [..., K]."""
    return np.sqrt(np.square(vector).sum(-1))


def proximity(distance: FloatArray, start_distance: FloatArray) -> FloatArray:
    """Return 1 at distance 0, falling linearly to 0 at the start distance or farther."""
    return np.clip(1 - distance / np.maximum(start_distance, 1e-6), 0.0, 1.0)


def stages(first_share: FloatArray, *later: FloatArray) -> FloatArray:
    """Return (stage + share of it) / number of stages; the stage is the last one whose condition holds.

    Args:
        first_share: Share of the first stage that is done, clipped to [0, 1].
        later: Condition (0: false) and share of each later stage, in order.
    """
    conditions, shares = later[0::2], later[1::2]
    value = np.clip(first_share, 0.0, 1.0)
    for stage, (condition, share) in enumerate(zip(conditions, shares, strict=True), start=1):
        value = np.where(condition != 0, stage + np.clip(share, 0.0, 1.0), value)
    return value / (1 + len(conditions))


def where(condition: FloatArray, yes: FloatArray, no: FloatArray) -> FloatArray:
    """Return `yes` where the condition [N] is not 0, else `no`; both are numbers [N] or vectors [N, K]."""
    is_true = condition != 0
    return np.where(is_true[:, None] if yes.ndim == 2 and is_true.ndim == 1 else is_true, yes, no)


def _smallest(*values: FloatArray) -> FloatArray:
    smallest = values[0]
    for value in values[1:]:
        smallest = np.minimum(smallest, value)
    return smallest


def _largest(*values: FloatArray) -> FloatArray:
    return -_smallest(*(-value for value in values))


FUNCTIONS: Mapping[str, Function] = {
    "norm": Function(compute=norm, operands="vectors", meaning="norm(v): length of a vector"),
    "distance": Function(
        compute=lambda first, second: norm(first - second),
        operands="vectors",
        min_count=2,
        meaning="distance(a, b): distance of two points",
    ),
    "dot": Function(
        compute=lambda first, second: (first * second).sum(-1),
        operands="vectors",
        min_count=2,
        meaning="dot(a, b): inner product of two vectors",
    ),
    "proximity": Function(
        compute=proximity,
        min_count=2,
        meaning="proximity(d, d_start): 1 at distance 0, falling linearly to 0 at d_start and farther",
    ),
    "stages": Function(
        compute=stages,
        min_count=3,
        step=2,
        meaning="stages(share_0, condition_1, share_1, condition_2, share_2, ...): progress in [0, 1] of a task of "
        "several stages, (stage + share) / number of stages; the stage is the last one whose condition holds",
    ),
    "where": Function(
        compute=where,
        operands="choice",
        min_count=3,
        meaning="where(condition, a, b): a where the condition holds, else b",
    ),
    "clip": Function(compute=np.clip, min_count=3, meaning="clip(x, low, high): x, at least low and at most high"),
    "min": Function(compute=_smallest, min_count=2, step=1, meaning="min(a, b, ...)"),
    "max": Function(compute=_largest, min_count=2, step=1, meaning="max(a, b, ...)"),
    "abs": Function(compute=np.abs, operands="any", meaning="abs(x)"),
    "exp": Function(compute=np.exp, operands="any", meaning="exp(x)"),
    "log": Function(compute=np.log, operands="any", meaning="log(x): natural logarithm"),
    "sqrt": Function(compute=np.sqrt, operands="any", meaning="sqrt(x)"),
    "tanh": Function(compute=np.tanh, operands="any", meaning="tanh(x)"),
}
