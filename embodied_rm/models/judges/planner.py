"""`plan_subgoals`: a language model splits an instruction into subgoals that a reward model knows.

A subgoal in words of its own would be judged like any unseen instruction: badly. So each must be one of the known ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.models.judges.chat import ChatModel, Query
from embodied_rm.types import SUBGOAL_SEPARATOR

SYSTEM_PROMPT = "You plan what a robot arm does on a table, in steps that it can do."
MAX_SUBGOALS = 8
MAX_TOKENS = 500  # length of an answer
MAX_REPAIRS = 2  # further questions after an answer that is no plan
LIST_MARK = re.compile(r"^\s*(?:[-*]|\d+[.)])\s*")


def plan_subgoals(chat: ChatModel, instruction: str, known: Sequence[str]) -> str:
    """Return an instruction with subgoals, "a; then b", whose parts are known.

    Args:
        chat: The language model.
        instruction: What the robot is to do, in any words.
        known: The instructions that a reward model can judge.

    Raises:
        UserError: No answer is a plan, or the model says that the known instructions do not suffice.
    """
    question = make_question(instruction, known)
    reason = ""
    for _ in range(MAX_REPAIRS + 1):
        query = Query(parts=(question + reason,), system=SYSTEM_PROMPT, max_tokens=MAX_TOKENS)
        (answer,) = chat.ask([query])
        if answer.text is None:
            raise UserError(f"the language model did not answer ({answer.failure}): run again with resume=true")
        if answer.text.strip().strip(".").casefold() == "impossible":
            raise UserError(f"{instruction!r} cannot be done by the {len(known)} known instructions, says the model")
        try:
            return check_plan(read_lines(answer.text), known)
        except UserError as error:
            reason = f"\n\nYour answer was:\n{answer.text.strip()}\nIt is no plan: {error}"
    raise UserError(f"no plan for {instruction!r} after {MAX_REPAIRS + 1} answers{reason}")


def make_question(instruction: str, known: Sequence[str]) -> str:
    """Return the question for a plan."""
    lines = "\n".join(known)
    return f"""The robot is asked: "{instruction}"
Split this into the fewest subgoals that do it, in order. Each must be one of these instructions, word for word:
{lines}

Answer with one instruction per line, and nothing else. If these do not suffice, answer: impossible"""


def read_lines(answer: str) -> list[str]:
    """Return the lines of an answer, without marks of a list and quotation marks."""
    lines = (LIST_MARK.sub("", line).strip().strip("\"'`.") for line in answer.splitlines())
    return [line for line in lines if line]


def check_plan(subgoals: Sequence[str], known: Sequence[str]) -> str:
    """Return the subgoals as one instruction, spelled as the known ones; `UserError` if they are no plan."""
    if not 1 <= len(subgoals) <= MAX_SUBGOALS:
        raise UserError(f"a plan has 1 to {MAX_SUBGOALS} subgoals, got {len(subgoals)}")
    spelling = {name.casefold(): name for name in known}
    for subgoal in subgoals:
        if subgoal.casefold() not in spelling:
            raise UserError(unknown_name_message(subgoal, known, "instruction"))
    return SUBGOAL_SEPARATOR.join(spelling[subgoal.casefold()] for subgoal in subgoals)
