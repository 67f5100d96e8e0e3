"""What a judge is asked and what it answers, whoever it is: a model in this process or one behind an endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from embodied_rm.types import Frames

ContentPart = str | Frames
"""A piece of a turn: text, an image uint8 [H, W, 3], or a video uint8 [T, H, W, 3]."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """One question about some images."""

    parts: tuple[ContentPart, ...]
    """The user's turn, in order."""
    system: str = ""
    """The system's turn; empty: there is none."""
    choices: tuple[str, ...] = ()
    """Answers whose log-probabilities are wanted; none: it is to write."""
    max_tokens: int = 64
    """Most tokens that it may write."""
    adapter: str = ""
    """Which of several sets of adapted weights answers; empty: the model itself."""
    fps: float = 1.0
    """Frames a second of its videos."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back: text, log-probabilities of the choices, numbers of its heads, or what went wrong."""

    text: str | None = None
    logprobs: Mapping[str, float] | None = None
    """Of each choice, in nats."""
    head_outputs: Mapping[str, float] | None = None
    """What heads of the model's own give, by their names."""
    failure: str | None = None
    """Why there is no answer: one of `FAULTS`."""


UNPARSABLE_ANSWER = "unparsable"
FAILURES = {
    UNPARSABLE_ANSWER: "an answer that says nothing of what was asked",
    "timeout": "no answer in time, at no attempt",
    "unreachable": "no connection, or it broke, at no attempt",
    "overloaded": "turned away as one too many, at every attempt",
    "server error": "the server said that it failed (status 5xx), at every attempt",
    "malformed": "an answer that is none by the protocol, at every attempt",
    "unlisted": "the log-probability that was asked for was not among those given",
}
"""Why a moment may be left unscored."""


class ChatModel(Protocol):
    """Whoever answers."""

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer each, in order; what goes wrong with one is no matter of the others.

        Raises `UserError` for what no query could be answered with: a wrong key, an unknown model.
        """
        ...
