"""A candidate of a search for reward programs, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TermStats:
    """Mean of one term of a program over evaluation episodes."""

    start: float
    middle: float
    end: float


@dataclass(frozen=True, kw_only=True)
class FitnessReport:
    """How a policy learned from a program."""

    success_curve: tuple[float, ...]  # success rate according to the simulator, after each iteration
    final_success: float  # success rate of the refined policy, in more episodes
    terms: Mapping[str, TermStats]  # term -> its means in episodes of the refined policy
    endings: Mapping[str, int]  # how those episodes ended -> number

    @property
    def fitness(self) -> float:
        """Mean success over training, and at its end: a program is better if a policy learns more, and sooner."""
        return (sum(self.success_curve) / len(self.success_curve) + self.final_success) / 2


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One program of a search."""

    name: str  # "generation_candidate", from 1
    source: str
    issues: tuple[str, ...] = ()  # why it was refused; empty: it was not
    report: FitnessReport | None = None  # None: it was refused


def best_candidate(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate with the highest fitness, the first of equal ones; None if all were refused."""
    rated = [candidate for candidate in candidates if candidate.report is not None]
    return max(rated, key=lambda candidate: candidate.report.fitness) if rated else None  # type: ignore[union-attr]
