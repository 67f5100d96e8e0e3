"""Plans of a language model: only of instructions that the reward model knows."""

from __future__ import annotations

import pytest
from models.judges.scripted import answer_in_order, text

from embodied_rm.errors import UserError
from embodied_rm.models.judges.planner import MAX_REPAIRS, plan_subgoals

KNOWN = ("open the drawer", "put the red cube into the drawer", "close the drawer", "lift the red cube")


def test_a_plan_is_an_instruction_with_subgoals() -> None:
    chat = answer_in_order('1. Open the drawer\n2. "put the red cube into the drawer".\n\n- close the drawer\n')
    plan = plan_subgoals(chat, "tidy the cube away", KNOWN)
    assert plan == "open the drawer; then put the red cube into the drawer; then close the drawer"
    assert "tidy the cube away" in text(chat.queries[0]) and all(name in text(chat.queries[0]) for name in KNOWN)


def test_other_words_are_refused_with_the_nearest_instruction() -> None:
    chat = answer_in_order("open the drawers\nclose the drawer", "open the drawer\nclose the drawer")
    assert plan_subgoals(chat, "open and close it", KNOWN) == "open the drawer; then close the drawer"
    assert "Did you mean 'open the drawer'?" in text(chat.queries[1]) and "open the drawers" in text(chat.queries[1])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (["impossible"], "cannot be done by the 4 known instructions"),
        (["fly away"] * (MAX_REPAIRS + 1), "unknown instruction 'fly away'"),
        (["\n".join(["open the drawer"] * 9)] * (MAX_REPAIRS + 1), "a plan has 1 to 8 subgoals, got 9"),
        ([""] * (MAX_REPAIRS + 1), "a plan has 1 to 8 subgoals, got 0"),
    ],
)
def test_no_plan_is_an_error_with_the_reason(answers: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_subgoals(answer_in_order(*answers), "fly", KNOWN)
