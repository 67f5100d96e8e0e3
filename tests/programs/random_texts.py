"""Texts made at random: programs, nearly programs, and Python that is none."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from embodied_rm.programs.operations import FUNCTIONS
from embodied_rm.programs.variables import NUMBER, POINT, Variable, with_start_values

VARIABLES = with_start_values(
    {
        "tool_pos": Variable(size=POINT, unit="m", meaning="point between the finger pads"),
        "cube_pos": Variable(size=POINT, unit="m", meaning="center of the cube"),
        "opening": Variable(size=NUMBER, unit="m", meaning="distance of the finger pads"),
    }
)

NUMBERS = ("0", "1", "0.5", "-2", "1e-9", "1e12", "3", "1e308", "True", "10**9")
OTHER_PYTHON = (
    "__import__('os')", "open('x')", "().__class__", "[1, 2]", "{1: 2}", "'a' * 10", "lambda: 1", "print(1)", "None",
    "opening.real", "f'{1}'", "*a", "yield", "await x", "a[::2]", "exec('1')", "(1,)", "1j", "b'x'", "...",
)  # fmt: skip
OPERATORS = ("+", "-", "*", "/", "**", "<", ">", "<=", "==", "!=", "and", "or")
RARE_OPERATORS = ("//", "%", "@", "<<", "in", "is", ",")


def draw_values(rows: int) -> dict[str, np.ndarray]:
    """Return random values of the variables."""
    rng = np.random.default_rng(0)
    return {name: rng.random((rows, 3) if v.size else rows) for name, v in VARIABLES.items()}


def random_source(rng: random.Random, variables: Mapping[str, Variable]) -> str:
    """Return a text: lines of random assignments, sometimes with damage."""
    names = list(variables)
    lines = []
    for index in range(rng.randint(0, 6)):
        lines.append(f"t{index} = {random_expression(rng, names, rng.randint(0, 5))}")
        names.append(f"t{index}")
    lines.append(f"{rng.choice(('reward', 'progress'))} = {random_expression(rng, names, rng.randint(0, 5))}")
    source = "\n".join(lines)
    if rng.random() < 0.1 and source:
        position = rng.randrange(len(source))
        source = source[:position] + rng.choice("()[]\n\t\0:=.'\"\\é#@ ") + source[position + rng.randint(0, 2) :]
    return source


def random_expression(rng: random.Random, names: list[str], depth: int) -> str:
    """Return an expression with at most that many levels."""
    kind = rng.random()
    if depth <= 0 or kind < 0.15:
        return rng.choice(NUMBERS) if rng.random() < 0.4 else rng.choice(names)
    if kind < 0.17:
        return rng.choice(OTHER_PYTHON)
    inner = [random_expression(rng, names, depth - rng.randint(1, 2)) for _ in range(rng.randint(1, 4))]
    if kind < 0.45:
        operator = rng.choice(RARE_OPERATORS) if rng.random() < 0.02 else rng.choice(OPERATORS)
        return f"({inner[0]} {operator} {inner[-1]})"
    if kind < 0.6:
        return f"{rng.choice(('norm', 'distance', 'dot'))}({', '.join(rng.choices(names, k=rng.randint(1, 2)))})"
    if kind < 0.85:
        return f"{rng.choice(list(FUNCTIONS))}({', '.join(inner)})"
    if kind < 0.93:
        return f"{rng.choice(names)}{rng.choice(('[0]', '[1]', '[2]', '[:2]', '[3]', '[-1]'))}"
    return f"({inner[0]} if {inner[-1]} else {inner[0]})" if kind < 0.97 else f"(not {inner[0]})"
