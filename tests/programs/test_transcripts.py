"""The recorded conversations of searches: every program is checked again, with the result that the writer saw."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

from embodied_rm.programs.designer import SYSTEM_PROMPT, ProgramBrief, extract_program
from embodied_rm.programs.search import ProgramChecks
from embodied_rm.tabletop.program_states import record_states, task_variables
from embodied_sim.registry import make_task

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "results" / "programs"
TRANSCRIPTS = sorted(FOLDER.glob("*.jsonl"))
REFUSED = re.compile(r"This program was refused:\n```\n(.*?)\n```\n(.*)\nCorrect it\.$", re.DOTALL)


@cache
def checks_of(task: str) -> ProgramChecks:
    variables, episodes = task_variables(make_task(task)), record_states(make_task(task))
    return ProgramChecks(variables=variables, episodes=episodes, output="progress", gamma=0.98)


def read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_there_are_conversations_of_six_tasks() -> None:
    assert len(TRANSCRIPTS) >= 6
    assert all(entry["by"] and entry["system"] == SYSTEM_PROMPT for path in TRANSCRIPTS for entry in read(path))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_every_program_is_accepted_or_refused_as_in_the_search(path: Path) -> None:
    """A program without an issue was tried; for the others, the next question has the reasons, word for word."""
    entries, checks = read(path), checks_of(path.stem)
    reported = {match[1]: match[2] for entry in entries if (match := REFUSED.search(entry["question"])) is not None}
    is_accepted = {}
    for entry in entries:
        source = extract_program(entry["answer"])
        program, reasons = checks.check(source)
        is_accepted[source] = program is not None
        if source in reported:
            assert "\n".join(f"* {reason}" for reason in reasons) == reported[source]
    assert reported.keys() <= is_accepted.keys() and not any(is_accepted[source] for source in reported)
    assert sum(is_accepted.values()) >= 9, "three rounds of three programs were tried"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_questions_are_those_of_today(path: Path) -> None:
    """The first question of a search is made again, letter by letter."""
    task, first = make_task(path.stem), read(path)[0]["question"]
    instruction = re.search(r'Task: "(.*?)"', first)
    assert instruction is not None
    seconds = task.max_episode_steps * 0.05
    brief = ProgramBrief(instruction=instruction[1], variables=task_variables(task), time_limit_s=seconds)
    assert first.startswith(brief.text())
