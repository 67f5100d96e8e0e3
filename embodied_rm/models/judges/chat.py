"""Queries to vision-language models and their answers, for models in this process and behind an endpoint."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from embodied_rm.types import Frames

ContentPart = str | Frames  # part of a turn: text, an image uint8 [H, W, 3], or a video uint8 [T, H, W, 3]


@dataclass(frozen=True, kw_only=True)
class Query:
    """One question about some images."""

    parts: tuple[ContentPart, ...]  # the user's turn, in order
    system: str = ""  # The system's turn. Empty: none.
    choices: tuple[str, ...] = ()  # Answers whose log-probabilities are requested. Empty: the model generates text.
    max_tokens: int = 64  # maximum number of generated tokens
    temperature: float = 0.0  # of sampled answers; 0: the most probable one
    adapter: str = ""  # Name of the LoRA adapter that answers. Empty: the base model.
    fps: float = 1.0  # frames per second of the videos in `parts`


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer: text, log-probabilities of the choices, outputs of heads, or the reason of a failure."""

    text: str | None = None
    logprobs: Mapping[str, float] | None = None  # choice -> log-probability, in nats
    head_outputs: Mapping[str, float] | None = None  # name of a model head -> its output
    failure: str | None = None  # reason of a missing answer: one of `FAILURES`


UNPARSABLE_ANSWER = "unparsable"
FAILURES = {
    UNPARSABLE_ANSWER: "the answer does not contain the requested value",
    "timeout": "every attempt timed out",
    "unreachable": "no attempt could connect, or every connection broke",
    "overloaded": "the server rejected every attempt because of its load (status 429 or 503)",
    "server error": "the server failed at every attempt (status 5xx)",
    "rejected": "the server did not accept the request (status 400, 413 or 422), or withheld the answer",
    "malformed": "the response violated the protocol at every attempt",
    "unlisted": "the requested log-probabilities were not among those returned",
}
"""Reason of an unscored frame -> its description."""


class ChatModel(Protocol):
    """A model that answers queries."""

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order. A failure of one query does not affect the others.

        `UserError` if no query can be answered, e.g. for a wrong API key or an unknown model.
        """
        ...


class BatchedChat(ABC):
    """A `ChatModel` that answers similar queries in batches."""

    batch_size: int  # number of queries per batch

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order."""
        order = sorted(range(len(queries)), key=lambda i: _batch_key(queries[i]))
        answers: dict[int, Answer] = {}
        for _, group in groupby(order, key=lambda i: _batch_key(queries[i])):
            members = list(group)
            for start in range(0, len(members), self.batch_size):
                rows = members[start : start + self.batch_size]
                answers.update(zip(rows, self._answer_batch([queries[i] for i in rows]), strict=True))
        return [answers[i] for i in range(len(queries))]

    @abstractmethod
    def _answer_batch(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer queries with the same adapter, choices, length of answers and temperature."""


def _batch_key(query: Query) -> tuple[str, tuple[str, ...], int, float]:
    """Return the properties that all queries of a batch share."""
    return query.adapter, query.choices, query.max_tokens, query.temperature
