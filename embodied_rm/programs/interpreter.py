"""Interpreter of reward programs: their expressions over arrays, one row per environment."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce

import numpy as np

from embodied_rm.programs.operations import BINARY_OPERATORS, COMPARISONS, FUNCTIONS, where
from embodied_rm.programs.program import Program
from embodied_rm.rewards.transitions import FloatArray


def evaluate(program: Program, values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Compute everything that a program assigns.

    Args:
        program: A checked program.
        values: Its variables: numbers float [N] and vectors float [N, 3].

    Returns:
        Its names -> float64 [N] or [N, K], in order; numbers that are undefined are NaN or infinite.
    """
    num_rows = len(next(iter(values.values())))
    names: dict[str, FloatArray] = {name: np.asarray(value, np.float64) for name, value in values.items()}
    terms = {}
    with np.errstate(all="ignore"):
        for name, expression in program.assignments:
            value = _value(expression, names)
            names[name] = value if value.ndim else np.full(num_rows, value)
            terms[name] = names[name]
    return terms


def _value(node: ast.expr, names: Mapping[str, FloatArray]) -> FloatArray:
    """Return the value of a checked expression; conditions are 1 or 0."""
    if isinstance(node, ast.Constant):
        return np.array(node.value, np.float64)
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp):
        return BINARY_OPERATORS[type(node.op)](*_align(_value(node.left, names), _value(node.right, names)))
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, names)
        if isinstance(node.op, ast.Not):
            return np.equal(operand, 0).astype(np.float64)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.Subscript):
        index = slice(0, 2) if isinstance(node.slice, ast.Slice) else node.slice.value  # type: ignore[attr-defined]
        return _value(node.value, names)[..., index]
    if isinstance(node, ast.Call):
        assert isinstance(node.func, ast.Name)
        return FUNCTIONS[node.func.id].compute(*(_value(argument, names) for argument in node.args))
    return _condition(node, names)


def _condition(node: ast.expr, names: Mapping[str, FloatArray]) -> FloatArray:
    if isinstance(node, ast.Compare):
        operands = [_value(operand, names) for operand in (node.left, *node.comparators)]
        steps = zip(node.ops, operands, operands[1:], strict=False)
        results = [COMPARISONS[type(op)](left, right) for op, left, right in steps]
        return reduce(np.logical_and, results).astype(np.float64)
    if isinstance(node, ast.BoolOp):
        combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        return reduce(combine, [_value(value, names) for value in node.values]).astype(np.float64)
    assert isinstance(node, ast.IfExp), ast.dump(node)
    return where(*(_value(part, names) for part in (node.test, node.body, node.orelse)))


def _align(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return both with equal dimensions: a number [N] applies to each component of a vector [N, K]."""
    if first.ndim == 1 and second.ndim == 2:
        return first[:, None], second
    if first.ndim == 2 and second.ndim == 1:
        return first, second[:, None]
    return first, second
