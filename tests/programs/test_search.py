"""The search for reward programs: its rounds, what a designer is told, random changes, and transcripts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from models.judges.scripted import answer_in_order, text
from planted_programs import GOOD_PROGRAMS

from embodied_rm.errors import DataError, UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.transcript import TranscriptChat
from embodied_rm.programs.candidate import Candidate, FitnessReport, TermStats, best_candidate
from embodied_rm.programs.check_types import ProgramError
from embodied_rm.programs.critic import RecordedStates
from embodied_rm.programs.designer import LanguageModelDesigner, ProgramBrief, extract_program
from embodied_rm.programs.mutation import MutationDesigner, mutate
from embodied_rm.programs.program import Program, parse_program
from embodied_rm.programs.search import MAX_REPAIRS, ProgramChecks, search_programs
from embodied_rm.programs.variables import NUMBER, Variable
from embodied_rm.tabletop.program_states import task_variables
from embodied_sim.registry import make_task, task_names

VARIABLES = {"height": Variable(size=NUMBER, unit="m", meaning="height of the cube")}
EPISODES = [
    RecordedStates(outcome="success", is_success=True, values={"height": np.linspace(0, 1, 5)}),
    RecordedStates(outcome="stall", is_success=False, values={"height": np.linspace(0, 0.5, 9)}),
]
CHECKS = ProgramChecks(variables=VARIABLES, episodes=EPISODES, output="progress", gamma=0.98)
BRIEF = ProgramBrief(instruction="lift the cube", variables=VARIABLES, time_limit_s=3.0)


def report(success: float) -> FitnessReport:
    terms = {"rise": TermStats(start=0.0, middle=0.25, end=0.75)}
    return FitnessReport(success_curve=(0.0, success), final_success=success, terms=terms, endings={"succeeded": 3})


def fenced(source: str) -> str:
    return f"I would try this.\n```python\n{source}\n```"


def measure_exponent(name: str, program: Program) -> FitnessReport:
    """The larger the exponent in the text, the better."""
    return report(int(program.source[-1]) / 10)


def test_rounds_reflect_on_the_best_program() -> None:
    chat = answer_in_order(*(fenced(f"progress = height ** {n}") for n in (1, 3, 2, 4)))
    history = search_programs(LanguageModelDesigner(chat, BRIEF), CHECKS, measure_exponent, generations=2, candidates=2)
    assert [candidate.name for candidate in history] == ["1_1", "1_2", "2_1", "2_2"]
    best = best_candidate(history)
    assert best is not None and best.source == "progress = height ** 4"
    questions = [text(query) for query in chat.queries]
    assert all("lift the cube" in q and "height: number, m. height of the cube" in q for q in questions)
    first, _, third, fourth = questions
    assert "best program" not in first and "height ** 3" in third and "height ** 1" not in third
    assert "rise: 0.000, 0.250, 0.750" in fourth and "3 succeeded" in fourth
    assert len(set(questions)) == 4


def test_a_refused_program_is_repaired_with_the_reasons() -> None:
    chat = answer_in_order(
        fenced("progress = hight"), fenced("progress = 1 - height"), fenced("progress = height ** 1")
    )
    history = search_programs(LanguageModelDesigner(chat, BRIEF), CHECKS, measure_exponent, generations=1, candidates=1)
    assert [candidate.report is None for candidate in history] == [True, True, False]
    questions = [text(query) for query in chat.queries]
    assert "Did you mean 'height'?" in history[0].issues[0] and "Did you mean 'height'?" in questions[1]
    assert "the sign of a term may be wrong" in questions[2] and "progress = 1 - height" in questions[2]


def test_a_program_is_given_up_after_some_repairs() -> None:
    chat = answer_in_order(*["nothing"] * (MAX_REPAIRS + 1))
    history = search_programs(LanguageModelDesigner(chat, BRIEF), CHECKS, measure_exponent, generations=1, candidates=1)
    assert len(history) == MAX_REPAIRS + 1 and best_candidate(history) is None and len(chat.queries) == MAX_REPAIRS + 1


def test_the_other_output_is_refused() -> None:
    _, reasons = CHECKS.check("reward = height")
    assert reasons == ("it assigns `reward`; assign `progress`",)


def test_feedback_is_passed_on() -> None:
    chat = answer_in_order(fenced("progress = height ** 1"))
    brief = ProgramBrief(instruction="lift", variables=VARIABLES, time_limit_s=3.0, feedback="it drops the cube")
    LanguageModelDesigner(chat, brief).propose([], 1)
    assert "it drops the cube" in text(chat.queries[0])


def test_fitness_prefers_learning_more_and_sooner() -> None:
    def make(*curve: float) -> Candidate:
        rated = FitnessReport(success_curve=curve, final_success=curve[-1], terms={}, endings={})
        return Candidate(name="1_1", source="", report=rated)

    slow, fast, failed = make(0.1, 0.2, 1.0), make(0.1, 0.9, 1.0), make(0.1, 0.9, 0.2)
    assert best_candidate([slow, failed, fast]) is fast and best_candidate([failed, slow]) is slow


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        ("```\na = 1\n```", "a = 1"),
        ("first ```x\nb\n``` then\n```python\nprogress = 1\n```\nDone.", "progress = 1"),
        ("progress = 1\n", "progress = 1"),
    ],
)
def test_the_program_is_the_last_code_block(answer: str, source: str) -> None:
    assert extract_program(answer) == source


def test_changed_programs_are_programs_that_differ() -> None:
    rng = random.Random(0)
    for task in task_names():
        variables = task_variables(make_task(task))
        changed = [mutate(GOOD_PROGRAMS[task], rng) for _ in range(20)]
        valid = 0
        for source in changed:
            try:
                parse_program(source, variables)
                valid += 1
            except ProgramError:
                continue
        assert valid >= 15 and len(set(changed)) > 15, task


def test_random_changes_start_from_the_best_program() -> None:
    designer = MutationDesigner("progress = height * 1.5", seed=1)
    assert designer.propose([], 3)[0] == "progress = height * 1.5"
    best = Candidate(name="1_1", source="progress = clip(height, 0, 1)", report=report(0.9))
    assert all("clip(" in source for source in designer.propose([best], 5))
    again = MutationDesigner("progress = height * 1.5", seed=1)
    assert again.propose([], 3) == MutationDesigner("progress = height * 1.5", seed=1).propose([], 3)


def test_a_transcript_answers_what_was_asked_before(tmp_path: Path) -> None:
    path, first, second = tmp_path / "t.jsonl", Query(parts=("one",)), Query(parts=("two",), system="s")
    chat = answer_in_order("1", "2")
    assert [a.text for a in TranscriptChat(path, chat, "a model").ask([first, second])] == ["1", "2"]
    stored = path.read_bytes()
    assert [a.text for a in TranscriptChat(path, None).ask([second, first, second])] == ["2", "1", "2"]
    assert path.read_bytes() == stored and [json.loads(line)["by"] for line in stored.splitlines()] == ["a model"] * 2
    with pytest.raises(UserError, match="has no answer to a question that starts with 'three'"):
        TranscriptChat(path, None).ask([first, Query(parts=("three",))])
    path.write_text('{"question": 1}\n')
    with pytest.raises(DataError, match="line 1: not an entry of a transcript"):
        TranscriptChat(path, None)


@pytest.mark.parametrize("text", ["one\u2028two", "a\x85b\x0b\x1c", "half \ud83d", "line\nline\r"])
def test_a_transcript_keeps_any_text(tmp_path: Path, text: str) -> None:
    path, query = tmp_path / "t.jsonl", Query(parts=(f"say {text}",), system=text)
    assert TranscriptChat(path, answer_in_order(text)).ask([query])[0].text == text
    assert TranscriptChat(path, None).ask([query])[0].text == text
    unescaped = {"system": "", "question": "q", "answer": "a\u2028b", "by": ""}  # as earlier versions wrote it
    path.write_text(json.dumps(unescaped, ensure_ascii=False) + "\n", encoding="utf-8")
    assert TranscriptChat(path, None).ask([Query(parts=("q",))])[0].text == "a\u2028b"


def test_two_chats_with_one_transcript_keep_the_answers_of_both(tmp_path: Path) -> None:
    path, queries = tmp_path / "t.jsonl", [Query(parts=(text,)) for text in ("one", "two", "both")]
    first, second = TranscriptChat(path, answer_in_order("1", "3")), TranscriptChat(path, answer_in_order("2", "4"))
    assert [chat.ask([query])[0].text for chat, query in zip((first, second), queries, strict=False)] == ["1", "2"]
    assert [chat.ask([queries[2]])[0].text for chat in (first, second)] == ["3", "3"], "the first one is stored"
    assert [answer.text for answer in TranscriptChat(path, None).ask(queries)] == ["1", "2", "3"]


@pytest.mark.parametrize("line", ["[" * 100_000, "5", '"x"', '{"system": "", "question": "q", "answer": 1}'])
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "t.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match="line 1: not an entry of a transcript"):
        TranscriptChat(tmp_path / "t.jsonl", None)


def test_a_failed_answer_is_not_stored(tmp_path: Path) -> None:
    class Unreachable:
        def ask(self, queries: Sequence[Query]) -> list[Answer]:
            return [Answer(failure="unreachable") for _ in queries]

    path = tmp_path / "t.jsonl"
    with pytest.raises(UserError, match=r"did not answer \(unreachable\): run again with resume=true"):
        LanguageModelDesigner(TranscriptChat(path, Unreachable()), BRIEF).propose([], 1)
    assert not path.exists()
