"""`MutationDesigner`: random changes of the best program, as a control for a language model that reflects."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from typing import TypeVar

from embodied_rm.programs.candidate import Candidate, best_candidate

OperatorT = TypeVar("OperatorT", bound=ast.AST)
CONSTANT_RATE, OPERATOR_RATE = 0.3, 0.05  # share of the numbers, and of the operations, that change
CONSTANT_LOG_STD = 0.5  # standard deviation of the logarithm of the factor of a number
MAX_ATTEMPTS = 20  # to change anything; a program may have nothing that changes
EXCHANGED_FUNCTIONS = (("min", "max"), ("exp", "tanh", "abs", "sqrt"))
EXCHANGED_OPERATORS: tuple[tuple[type[ast.AST], ...], ...] = (
    (ast.Add, ast.Sub, ast.Mult),
    (ast.Lt, ast.Gt),
    (ast.And, ast.Or),
)


class MutationDesigner:
    """Proposes changes of the best program."""

    def __init__(self, first: str, seed: int = 0) -> None:
        """`first` is the program that is changed until one has a fitness."""
        self._first, self._rng = first, random.Random(seed)

    def propose(self, history: Sequence[Candidate], count: int) -> list[str]:
        """Return `count` changes of the best program, the first time with the program itself."""
        best = best_candidate(history)
        if not history:
            return [self._first, *(mutate(self._first, self._rng) for _ in range(count - 1))]
        source = self._first if best is None else best.source
        return [mutate(source, self._rng) for _ in range(count)]

    def repair(self, candidate: Candidate) -> str:
        """Return another change of the first program in place of a refused one."""
        return mutate(self._first, self._rng)


def mutate(source: str, rng: random.Random) -> str:
    """Return a program with at least one other number, operator or function; `source` is a program."""
    before = ast.unparse(ast.parse(source))
    for _ in range(MAX_ATTEMPTS):
        changed = _change(source, rng)
        if changed != before:
            return changed
    return before


def _change(source: str, rng: random.Random) -> str:
    tree = ast.parse(source)
    subscripts = [node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    components = {id(part) for subscript in subscripts for part in ast.walk(subscript)}  # x, y, z: no numbers
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            if id(node) not in components and rng.random() < CONSTANT_RATE:
                factor = rng.lognormvariate(0, CONSTANT_LOG_STD)
                node.value = float(f"{float(node.value) * factor:.4g}")  # type: ignore[arg-type]
        elif rng.random() < OPERATOR_RATE:
            _exchange(node, rng)
    return ast.unparse(tree)


def _exchange(node: ast.AST, rng: random.Random) -> None:
    """Replace the operator or the function of a node by one that takes its place."""
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = _other(node.op, rng)
    elif isinstance(node, ast.Compare):
        node.ops = [_other(operator, rng) for operator in node.ops]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        others = [other for group in EXCHANGED_FUNCTIONS if name in group for other in group if other != name]
        node.func.id = rng.choice(others) if others else name


def _other(operator: OperatorT, rng: random.Random) -> OperatorT:
    kinds = [kind for group in EXCHANGED_OPERATORS if type(operator) in group for kind in group]
    others = [kind for kind in kinds if kind is not type(operator)]
    return rng.choice(others)() if others else operator  # type: ignore[return-value]
