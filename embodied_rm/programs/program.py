"""`parse_program`: text to a reward program, whose every part is checked before it computes anything."""

from __future__ import annotations

import ast
import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from embodied_rm.errors import UserError
from embodied_rm.programs.check_types import ProgramError, TypeChecker
from embodied_rm.programs.variables import Variable
from embodied_rm.text_file import read_text

MAX_CHARACTERS, MAX_NODES, MAX_DEPTH = 8000, 600, 40
"""Limits of the text, of the parts of its syntax tree, and of their nesting."""
OutputKind = Literal["progress", "reward"]
OUTPUTS: Mapping[OutputKind, str] = {
    "progress": "share of the task that is done, in [0, 1]; it becomes a potential, which cannot move the optimum",
    "reward": "reward of a step, paid as it is",
}
"""Name that a program must assign, and what it is."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A checked program."""

    source: str
    assignments: tuple[tuple[str, ast.expr], ...]  # name and expression, in order
    output: OutputKind

    @property
    def sha256(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def terms(self) -> tuple[str, ...]:
        """Names that it assigns, in order."""
        return tuple(name for name, _ in self.assignments)


def parse_program(source: str, variables: Mapping[str, Variable]) -> Program:
    """Parse and check a program.

    Args:
        source: Lines of the form `name = expression`, in Python's syntax; `#` starts a comment.
        variables: What it may read, by name.

    Returns:
        The program. It can be interpreted without further checks.

    Raises:
        ProgramError: The text is not a program. The message has the line, the reason and the choices.
    """
    tree = parse_syntax(source)
    check_size(tree)
    checker = TypeChecker(variables)
    assignments = tuple(checker.check_statement(statement) for statement in tree.body)
    outputs: list[OutputKind] = [name for name in OUTPUTS if name in dict(assignments)]
    if len(outputs) != 1:
        choices = " or ".join(f"`{name}` ({meaning})" for name, meaning in OUTPUTS.items())
        raise ProgramError(f"a program assigns {choices}; this one assigns {' and '.join(outputs) or 'neither'}")
    if checker.sizes[outputs[0]]:
        raise ProgramError(f"`{outputs[0]}` must be a number, and it is a vector")
    return Program(source=source, assignments=assignments, output=outputs[0])


def parse_syntax(source: str) -> ast.Module:
    """Return the syntax tree; `ProgramError` if the text is too long or is not Python's syntax."""
    if len(source) > MAX_CHARACTERS:
        raise ProgramError(f"a program has at most {MAX_CHARACTERS} characters, and this one has {len(source)}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python would print lines of the text, and look for its file
            return ast.parse(source, os.devnull)  # Python reads a wrong line from the file of this name
    except SyntaxError as error:
        raise ProgramError(f"{error.msg}: not the syntax of Python", error.lineno) from None
    except (ValueError, RecursionError, MemoryError):
        # Null bytes; expressions that are nested too deeply for Python's parser.
        raise ProgramError("it cannot be parsed: it contains null bytes, or is nested too deeply") from None


def check_size(tree: ast.Module) -> None:
    """Raise `ProgramError` if the tree has too many parts or is nested too deeply; without recursion."""
    count, level = 0, 0
    children: list[ast.AST] = [*tree.body]
    while children:
        count, level = count + len(children), level + 1
        if count > MAX_NODES or level > MAX_DEPTH:
            reason = f"{MAX_NODES} names, numbers and operations, nested at most {MAX_DEPTH} deep"
            raise ProgramError(f"a program has at most {reason}")
        children = [child for node in children for child in ast.iter_child_nodes(node)]


def read_program(path: Path, variables: Mapping[str, Variable]) -> Program:
    """Parse the program in a text file; errors name the file."""
    try:
        source = read_text(path)
    except OSError as error:
        raise UserError(f"{path}: not a program that can be read ({error})") from None
    try:
        return parse_program(source, variables)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from None
