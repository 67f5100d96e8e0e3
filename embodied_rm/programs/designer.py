"""Who proposes programs: a language model that reflects on what was tried, or random changes as a control.

Sources: Eureka (Ma et al., arXiv 2310.12931), several candidates per generation, and reflection on the statistics of
each term; Text2Reward (Xie et al., arXiv 2309.11489), a person's words; Auto MC-Reward (arXiv 2312.09238), a critic's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import ChatModel, Query
from embodied_rm.programs.candidate import Candidate, FitnessReport, best_candidate
from embodied_rm.programs.describe import describe_language, describe_variables
from embodied_rm.programs.program import OutputKind
from embodied_rm.programs.variables import Variable

SYSTEM_PROMPT = "You write reward programs from which a robot arm learns a task by reinforcement learning."
CODE_PATTERN = re.compile(r"```[a-zA-Z]*\n(.*?)```", re.DOTALL)
MAX_TOKENS = 1500  # length of an answer


@dataclass(frozen=True, kw_only=True)
class ProgramBrief:
    """What a designer is told about a task."""

    instruction: str
    variables: Mapping[str, Variable]
    time_limit_s: float  # longest duration of an episode, in seconds
    output: OutputKind = "progress"
    feedback: str = ""  # a person's words about earlier programs; empty: none

    def text(self) -> str:
        """Return the brief in words."""
        feedback = f"\nA person saw earlier attempts and says: {self.feedback}\n" if self.feedback else ""
        return f"""Task: "{self.instruction}". An episode lasts at most {self.time_limit_s:g} s.
The episode ends as soon as the simulator finds the task done; that success is rewarded in addition to your program.

Variables, one value per environment:
{describe_variables(self.variables)}

{describe_language()}
{feedback}
Assign `{self.output}`. Give every part of the task that you think of a name, since you will see the values of each.
Answer with the program in one code block, and nothing after it."""


class LanguageModelDesigner:
    """Asks a language model for programs."""

    def __init__(self, chat: ChatModel, brief: ProgramBrief, temperature: float = 1.0) -> None:
        self._chat, self._brief, self._temperature = chat, brief, temperature

    def propose(self, history: Sequence[Candidate], count: int) -> list[str]:
        """Return `count` new programs, given everything that was tried."""
        generation = len({candidate.name.split("_")[0] for candidate in history}) + 1
        reflection = reflect(best_candidate(history))
        questions = [
            f"{self._brief.text()}\n{reflection}\nThis is proposal {number} of {count} in round {generation}: "
            "they should differ from each other."
            for number in range(1, count + 1)
        ]
        return self._ask(questions)

    def repair(self, candidate: Candidate) -> str:
        """Return another program in place of a refused one."""
        reasons = "\n".join(f"* {issue}" for issue in candidate.issues)
        question = (
            f"{self._brief.text()}\n\nThis program was refused:\n```\n{candidate.source}\n```\n{reasons}\nCorrect it."
        )
        return self._ask([question])[0]

    def _ask(self, questions: Sequence[str]) -> list[str]:
        queries = [
            Query(parts=(text,), system=SYSTEM_PROMPT, max_tokens=MAX_TOKENS, temperature=self._temperature)
            for text in questions
        ]
        answers = self._chat.ask(queries)
        failures = [answer.failure for answer in answers if answer.failure is not None]
        if failures:
            raise UserError(f"the language model did not answer ({failures[0]}): run again with resume=true")
        return [extract_program(answer.text or "") for answer in answers]


def extract_program(answer: str) -> str:
    """Return the last code block of an answer, or all of it if it has none."""
    blocks = CODE_PATTERN.findall(answer)
    return (blocks[-1] if blocks else answer).strip()


def reflect(best: Candidate | None) -> str:
    """Return in words how the best program so far did; empty without one."""
    if best is None or best.report is None:
        return ""
    return f"""
The best program so far:
```
{best.source}
```
{describe_report(best.report)}
Improve it: change or drop terms that do not vary, and reward what is missing where episodes end."""


def describe_report(report: FitnessReport) -> str:
    """Return the statistics of a training in words."""
    curve = " ".join(f"{rate:.2f}" for rate in report.success_curve)
    terms = "\n".join(
        f"  {name}: {stats.start:.3f}, {stats.middle:.3f}, {stats.end:.3f}" for name, stats in report.terms.items()
    )
    endings = ", ".join(f"{count} {ending}" for ending, count in report.endings.items())
    return f"""A policy learned from it. Its success rate is {report.final_success:.2f}; after each iteration it was
{curve}.
Mean of each term at the start, in the middle and at the end of its episodes:
{terms}
How these episodes ended: {endings}."""
