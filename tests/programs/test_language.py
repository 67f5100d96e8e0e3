"""The language of reward programs: known values, refused texts, and programs made at random."""

from __future__ import annotations

import ast
import random
import tracemalloc
from time import perf_counter

import numpy as np
import pytest
from random_texts import VARIABLES, draw_values, random_source

from embodied_rm.programs.check_types import ProgramError
from embodied_rm.programs.describe import describe_language, describe_variables
from embodied_rm.programs.interpreter import evaluate
from embodied_rm.programs.operations import FUNCTIONS
from embodied_rm.programs.program import MAX_CHARACTERS, MAX_NODES, parse_program

ROWS = 5


VALUES = draw_values(ROWS)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2 * 3 - 4 / 8", np.full(ROWS, 6.5)),
        ("-opening ** 2", -(VALUES["opening"] ** 2)),
        ("2 ** 3 ** 2", np.full(ROWS, 512.0)),
        ("tool_pos[2]", VALUES["tool_pos"][:, 2]),
        ("norm(tool_pos[:2])", np.linalg.norm(VALUES["tool_pos"][:, :2], axis=1)),
        ("distance(tool_pos, cube_pos)", np.linalg.norm(VALUES["tool_pos"] - VALUES["cube_pos"], axis=1)),
        ("dot(tool_pos, opening * cube_pos)", VALUES["opening"] * (VALUES["tool_pos"] * VALUES["cube_pos"]).sum(1)),
        ("norm(tool_pos / opening)", np.linalg.norm(VALUES["tool_pos"] / VALUES["opening"][:, None], axis=1)),
        ("0.2 < opening <= 0.8", ((VALUES["opening"] > 0.2) & (VALUES["opening"] <= 0.8)).astype(float)),
        ("not opening > 0.5 or opening > 2", (VALUES["opening"] <= 0.5).astype(float)),
        ("1 if opening > 0.5 else 2", np.where(VALUES["opening"] > 0.5, 1.0, 2.0)),
        ("where(opening > 0.5, tool_pos, cube_pos)[0]",
         np.where(VALUES["opening"] > 0.5, VALUES["tool_pos"][:, 0], VALUES["cube_pos"][:, 0])),
        ("min(opening, 0.5, 0.7)", np.minimum(VALUES["opening"], 0.5)),
        ("max(opening, 0.5)", np.maximum(VALUES["opening"], 0.5)),
        ("clip(3 * opening, 0, 1)", np.clip(3 * VALUES["opening"], 0, 1)),
        ("proximity(opening, 2)", 1 - VALUES["opening"] / 2),
        ("stages(0.5, opening > -1, 0.25, opening > 7, 1)", np.full(ROWS, (1 + 0.25) / 3)),
        ("stages(7, opening > 7, 1)", np.full(ROWS, 0.5)),
        ("exp(log(opening)) + abs(-1) + sqrt(4) + tanh(0)", VALUES["opening"] + 3),
        ("start_opening - opening", VALUES["start_opening"] - VALUES["opening"]),
    ],
)  # fmt: skip
def test_expressions_have_their_known_values(expression: str, expected: np.ndarray) -> None:
    program = parse_program(f"reward = {expression}", VARIABLES)
    assert evaluate(program, VALUES)["reward"] == pytest.approx(expected)


def test_every_line_is_a_term_that_later_lines_can_use() -> None:
    program = parse_program("# how far\nfar = distance(tool_pos, cube_pos)\nprogress = exp(-far)  # near", VARIABLES)
    terms = evaluate(program, VALUES)
    assert program.terms == tuple(terms) == ("far", "progress") and program.output == "progress"
    assert terms["progress"] == pytest.approx(np.exp(-terms["far"]))


@pytest.mark.parametrize("expression", ["1 / 0", "sqrt(0 - 1)", "log(0)", "exp(1e5)", "(0 - 1) ** 0.5", "9 ** 9 ** 9"])
def test_undefined_numbers_stay_undefined_and_nothing_is_raised(expression: str) -> None:
    with np.errstate(all="raise"):
        reward = evaluate(parse_program(f"reward = {expression}", VARIABLES), VALUES)["reward"]
    assert reward.shape == (ROWS,) and not np.isfinite(reward).any()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import os\nreward = 1", "line 1: a program consists of lines `name = expression`, not of Import"),
        ("reward = __import__('os').system('true')", "line 1: unknown function"),
        ("reward = tool_pos.__class__", "Attribute is not part of programs"),
        ("reward = (lambda: 1)()", "unknown function"),
        ("reward = [x for x in (1, 2)]", "ListComp is not part of programs"),
        ("reward = 'text'", "constants are numbers"),
        ("reward = f'{opening}'", "JoinedStr is not part of programs"),
        ("reward = (y := 1)", "NamedExpr is not part of programs"),
        ("def f(): pass", "not of FunctionDef"),
        ("while 1: pass", "not of While"),
        ("reward += 1", "not of AugAssign"),
        ("a = b = 1", "a line assigns one name"),
        ("tool_pos[0] = 1", "a line assigns one name"),
        ("opening = 1", "'opening' is a variable of the scene: choose another name"),
        ("clip = 1", "'clip' is a function: choose another name"),
        ("reward = openning", "line 1: unknown name 'openning'. Did you mean 'opening'?"),
        ("reward = reward + 1", "unknown name 'reward'"),
        ("reward = norm(opening)", "norm needs vectors, and `opening` is a number"),
        ("reward = tool_pos", "`reward` must be a number, and it is a vector"),
        ("reward = tool_pos > 1", "a condition needs a number, and `tool_pos` is a vector of 3 components"),
        ("reward = norm(tool_pos[:2] - cube_pos)", "joins a vector of 2 components and a vector of 3 components"),
        ("reward = norm(tool_pos if opening else opening)", "needs a vector of 3 components"),
        ("reward = tool_pos[3]", "the components [0], [1], [2]"),
        ("reward = tool_pos[opening]", "the components [0], [1], [2]"),
        ("reward = opening[0]", "`opening` is a number: it has no components"),
        ("reward = clip(opening, 0)", "call it as clip(x, low, high)"),
        ("reward = clip(opening, low=0, high=1)", "call it as clip(x, low, high)"),
        ("reward = stages(1, 1)", "call it as stages("),
        ("reward = 1e999", "numbers of at most 1e+12"),
        ("reward = 1" + "0" * 400, "numbers of at most 1e+12"),
        ("reward = 1j", "constants are numbers"),
        ("reward = opening @ opening", "BinOp is not part of programs"),
        ("reward = opening % 2", "BinOp is not part of programs"),
        ("far = 1", "assigns neither"),
        ("reward = 1\nprogress = 1", "this one assigns progress and reward"),
        ("reward = (1", "not the syntax of Python"),
        ("reward = 1\0", "null bytes"),
        ("reward = " + "9" * 5000, "not the syntax of Python"),
        ("reward = " + "(" * 500 + "1" + ")" * 500, "not the syntax of Python"),
        ("reward = " + "-" * 7000 + "1", "nested too deeply"),
        ("reward = " + "-" * 60 + "1", "nested at most"),
        ("reward = " + "+".join(["opening"] * MAX_NODES), "a program has at most"),
        ("#" * (MAX_CHARACTERS + 1), f"at most {MAX_CHARACTERS} characters"),
    ],
)  # fmt: skip
def test_other_texts_are_refused_with_line_and_reason(source: str, message: str) -> None:
    with pytest.raises(ProgramError) as error:
        parse_program(source, VARIABLES)
    assert message in str(error.value) and len(str(error.value)) < 600


def test_checks_take_time_in_proportion_to_the_text() -> None:
    """Each level looks at the one below twice; without memory, 34 levels would take 2^34 checks."""
    nested = "opening"
    for _ in range(34):
        nested = f"clip({nested}, 0, 1)"
    start = perf_counter()
    parse_program(f"reward = {nested}", VARIABLES)
    assert perf_counter() - start < 10


def test_random_programs_neither_crash_nor_escape() -> None:
    """Random texts, most of them nearly programs: each is refused, or computes numbers of the right shape."""
    rng, accepted = random.Random(0), 0
    tracemalloc.start()
    for _ in range(4000):
        source = random_source(rng, VARIABLES)
        try:
            program = parse_program(source, VARIABLES)
        except ProgramError:
            continue
        terms = evaluate(program, VALUES)
        assert all(value.dtype == np.float64 and len(value) == ROWS for value in terms.values()), source
        assert terms[program.output].shape == (ROWS,), source
        accepted += 1
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert accepted > 200


@pytest.mark.filterwarnings("error")
def test_nothing_is_printed_for_a_text_that_python_warns_of(capfd: pytest.CaptureFixture[str]) -> None:
    assert evaluate(parse_program("reward = 1if opening>2else 3", VARIABLES), VALUES)["reward"].tolist() == [3.0] * ROWS
    with pytest.raises(ProgramError):
        parse_program("reward = '\\d'", VARIABLES)
    assert capfd.readouterr() == ("", "")


def test_the_description_names_everything_that_a_program_may_use() -> None:
    language, scene = describe_language(), describe_variables(VARIABLES)
    assert all(f"{name}(" in language for name in FUNCTIONS)
    assert all(name in scene for name in VARIABLES if not name.startswith("start_"))
    assert "vector of 3 components, m. center of the cube" in scene and "start_<name>" in scene


def test_the_syntax_tree_of_a_program_holds_nothing_else() -> None:
    program = parse_program("reward = clip(opening, 0, 1) + tool_pos[2]", VARIABLES)
    kinds = {type(node) for _, expression in program.assignments for node in ast.walk(expression)}
    assert kinds == {ast.BinOp, ast.Add, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Subscript}
