"""The description of a scene and of the language, for the person or model that writes a program."""

from __future__ import annotations

from collections.abc import Mapping

from embodied_rm.programs.operations import FUNCTIONS
from embodied_rm.programs.program import OUTPUTS
from embodied_rm.programs.variables import START_PREFIX, Variable, describe_size


def describe_variables(variables: Mapping[str, Variable]) -> str:
    """Return one line per variable: name, size, unit and meaning."""
    lines = []
    for name, variable in variables.items():
        if name.startswith(START_PREFIX):
            continue
        unit = f", {variable.unit}" if variable.unit else ""
        lines.append(f"{name}: {describe_size(variable.size)}{unit}. {variable.meaning}")
    lines.append(f"{START_PREFIX}<name>: each of these at the start of the episode")
    return "\n".join(lines)


def describe_language() -> str:
    """Return the rules of the language."""
    functions = "\n".join(f"  {function.meaning}" for function in FUNCTIONS.values())
    outputs = "\n".join(f"  {name}: {meaning}" for name, meaning in OUTPUTS.items())
    return f"""A program has lines `name = expression`. It assigns one of:
{outputs}
Expressions have numbers, names, + - * / **, comparisons, `and`, `or`, `not`, `a if c else b`, the components of a point
p[0], p[1], p[2] (x, y, z) and p[:2], and these functions:
{functions}
There are no loops, imports, lists, texts or other functions. Conditions are 1 or 0. Lengths are in meters; z is up."""
