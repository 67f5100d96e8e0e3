"""`search_programs`: generations of programs, each checked, tried, and improved from what it led to.

Source: Eureka (Ma et al., arXiv 2310.12931), whose fitness is also the success after training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from embodied_rm.programs.candidate import Candidate, FitnessReport
from embodied_rm.programs.check_types import ProgramError
from embodied_rm.programs.critic import RecordedStates, criticize
from embodied_rm.programs.program import OutputKind, Program, parse_program
from embodied_rm.programs.variables import Variable

MAX_REPAIRS = 2  # further attempts in place of a refused program


class Designer(Protocol):
    """Who proposes programs."""

    def propose(self, history: Sequence[Candidate], count: int) -> list[str]:
        """Return `count` new programs, given everything that was tried."""
        ...

    def repair(self, candidate: Candidate) -> str:
        """Return another program in place of a refused one."""
        ...


@dataclass(frozen=True, kw_only=True)
class ProgramChecks:
    """What decides whether a program may be tried."""

    variables: Mapping[str, Variable]
    episodes: Sequence[RecordedStates]  # experts and failures
    output: OutputKind
    gamma: float

    def check(self, source: str) -> tuple[Program | None, tuple[str, ...]]:
        """Return the program of a text, or None and the reasons why it is refused."""
        try:
            program = parse_program(source, self.variables)
        except ProgramError as error:
            return None, (str(error),)
        if program.output != self.output:
            return None, (f"it assigns `{program.output}`; assign `{self.output}`",)
        issues = criticize(program, self.episodes, gamma=self.gamma)
        return (program if not issues else None), tuple(issue.reason for issue in issues)


def search_programs(
    designer: Designer,
    checks: ProgramChecks,
    measure: Callable[[str, Program], FitnessReport],
    *,
    generations: int,
    candidates: int,
) -> list[Candidate]:
    """Search for the program from which a policy learns best.

    Args:
        designer: Who proposes programs.
        checks: What they must pass before they are tried.
        measure: (name of the candidate, its program) -> how a policy learned from it.
        generations: Rounds of proposals.
        candidates: Programs per round.

    Returns:
        All candidates in order, refused ones too.
    """
    history: list[Candidate] = []
    for generation in range(1, generations + 1):
        proposals = designer.propose(history, candidates)
        tried = [
            try_program(f"{generation}_{number}", source, designer, checks, measure)
            for number, source in enumerate(proposals, start=1)
        ]
        history += [candidate for attempts in tried for candidate in attempts]
    return history


def try_program(
    name: str,
    source: str,
    designer: Designer,
    checks: ProgramChecks,
    measure: Callable[[str, Program], FitnessReport],
) -> list[Candidate]:
    """Return the candidates that one proposal led to: refused ones, and the one that was tried, if any."""
    attempts: list[Candidate] = []
    for attempt in range(MAX_REPAIRS + 1):
        attempt_name = name if attempt == 0 else f"{name}_{attempt}"
        program, issues = checks.check(source)
        if program is not None:
            report = measure(attempt_name, program)
            return [*attempts, Candidate(name=attempt_name, source=source, report=report)]
        attempts.append(Candidate(name=attempt_name, source=source, issues=issues))
        if attempt < MAX_REPAIRS:
            source = designer.repair(attempts[-1])
    return attempts
