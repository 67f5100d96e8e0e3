"""Static checks of a program: which syntax it may use, that names are known, and that numbers and vectors fit."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.programs.operations import BINARY_OPERATORS, COMPARISONS, FUNCTIONS
from embodied_rm.programs.variables import NUMBER, Variable, describe_size

SYNTAX = (
    "numbers, names, + - * / **, comparisons, and, or, not, `a if c else b`, `v[0]`, `v[:2]`, and calls of functions"
)

MAX_CONSTANT = 1e12  # largest absolute value of a constant


class ProgramError(UserError):
    """A text that is no program."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")


class TypeChecker:
    """The number of components of a program's names, statement by statement."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        self.sizes = {name: variable.size for name, variable in variables.items()}
        self._inputs = frozenset(variables)
        self._known: dict[ast.expr, int] = {}  # checked parts: without them, time would be exponential in the depth

    def check_statement(self, statement: ast.stmt) -> tuple[str, ast.expr]:
        """Check `name = expression`; return both."""
        if not isinstance(statement, ast.Assign):
            kind = type(statement).__name__
            raise ProgramError(f"a program consists of lines `name = expression`, not of {kind}", statement.lineno)
        (*others, target) = statement.targets
        if others or not isinstance(target, ast.Name):
            raise ProgramError("a line assigns one name: `name = expression`", statement.lineno)
        if target.id in self._inputs or target.id in FUNCTIONS:
            kind = "a variable of the scene" if target.id in self._inputs else "a function"
            raise ProgramError(f"{target.id!r} is {kind}: choose another name", statement.lineno)
        self.sizes[target.id] = self.size_of(statement.value)
        return target.id, statement.value

    def size_of(self, node: ast.expr) -> int:
        """Return the components of an expression; `ProgramError` if it is none that a program may have."""
        if node not in self._known:
            self._known[node] = self._check(node)
        return self._known[node]

    def _check(self, node: ast.expr) -> int:
        if isinstance(node, ast.Constant):
            return self._constant(node)
        if isinstance(node, ast.Name):
            if node.id not in self.sizes:
                raise ProgramError(unknown_name_message(node.id, self.sizes, "name"), node.lineno)
            return self.sizes[node.id]
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY_OPERATORS:
            return self._join(node, [node.left, node.right])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return self.size_of(node.operand)
        if isinstance(node, ast.Subscript):
            return self._component(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.IfExp):
            return self._choice(node, node.test, node.body, node.orelse)
        for operand in self._logical_operands(node):
            self._require(NUMBER, operand, "a condition")
        return NUMBER

    def _logical_operands(self, node: ast.expr) -> Sequence[ast.expr]:
        """Return the operands of a comparison or a logical operation, which are numbers, as is its result."""
        if isinstance(node, ast.Compare) and all(type(op) in COMPARISONS for op in node.ops):
            return [node.left, *node.comparators]
        if isinstance(node, ast.BoolOp):
            return node.values
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return [node.operand]
        raise ProgramError(f"{type(node).__name__} is not part of programs; these are: {SYNTAX}", node.lineno)

    def _constant(self, node: ast.Constant) -> int:
        if not isinstance(node.value, bool | int | float) or not abs(node.value) <= MAX_CONSTANT:
            text = repr(node.value)[:40]
            raise ProgramError(f"constants are numbers of at most {MAX_CONSTANT:g}, and {text} is not", node.lineno)
        return NUMBER

    def _join(self, node: ast.expr, operands: Sequence[ast.expr]) -> int:
        """Return the components of an elementwise operation: a number applies to each component of a vector."""
        sizes = {self.size_of(operand) for operand in operands} - {NUMBER}
        if len(sizes) > 1:
            kinds = " and a ".join(map(describe_size, sorted(sizes)))
            raise ProgramError(f"`{_text(node)}` joins a {kinds}", node.lineno)
        return sizes.pop() if sizes else NUMBER

    def _require(self, size: int, node: ast.expr, where: str) -> None:
        actual = self.size_of(node)
        if actual != size:
            hint = "" if size else ": take norm(...) or a component, [2]"
            raise ProgramError(
                f"{where} needs a {describe_size(size)}, and `{_text(node)}` is a {describe_size(actual)}{hint}",
                node.lineno,
            )

    def _choice(self, node: ast.expr, condition: ast.expr, yes: ast.expr, no: ast.expr) -> int:
        """Check a condition and two values of one size."""
        self._require(NUMBER, condition, "a condition")
        self._require(self.size_of(yes), no, f"the other value of `{_text(node)}`")
        return self.size_of(yes)

    def _component(self, node: ast.Subscript) -> int:
        """Check `v[0]`, `v[1]`, `v[2]` and `v[:2]`."""
        size = self.size_of(node.value)
        if not size:
            raise ProgramError(f"`{_text(node.value)}` is a number: it has no components", node.lineno)
        index = node.slice
        if isinstance(index, ast.Constant) and type(index.value) is int and 0 <= index.value < size:
            return NUMBER
        if _text(index) == ":2":
            return 2
        raise ProgramError("a point has the components [0], [1], [2] (x, y, z), and [:2] (x and y)", node.lineno)

    def _call(self, node: ast.Call) -> int:
        name = node.func.id if isinstance(node.func, ast.Name) else _text(node.func)
        if name not in FUNCTIONS:
            raise ProgramError(unknown_name_message(name, FUNCTIONS, "function"), node.lineno)
        function = FUNCTIONS[name]
        if node.keywords or not function.accepts(len(node.args)):
            raise ProgramError(f"call it as {function.meaning}", node.lineno)
        if function.operands == "numbers":
            for argument in node.args:
                self._require(NUMBER, argument, name)
        if function.operands == "choice":
            return self._choice(node, *node.args)
        size = self._join(node, node.args)
        if function.operands != "vectors":
            return size
        for argument in node.args:
            if not self.size_of(argument):
                raise ProgramError(f"{name} needs vectors, and `{_text(argument)}` is a number", node.lineno)
        return NUMBER


def _text(node: ast.expr) -> str:
    """Return the text of an expression, for messages."""
    return ast.unparse(node)[:60]
