"""`TranscriptChat`: answers of a language model, stored with their questions, to repeat a run without it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from embodied_rm.atomic_file import update_in_turn, write_atomic
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.judges.chat import Answer, ChatModel, Query
from embodied_rm.text_file import read_text


class TranscriptChat:
    """A `ChatModel` that answers from a file what was asked before, and asks a model for the rest.

    The file is JSON Lines: question, answer, and who answered. Failures are not stored.
    """

    def __init__(self, path: Path, chat: ChatModel | None, answered_by: str = "") -> None:
        """Read the file, if it exists.

        Args:
            path: The file; new answers are added to it.
            chat: The model; None: a question without a stored answer is an error.
            answered_by: The name of the model, stored with its answers.

        Raises:
            DataError: The file is not a transcript.
        """
        self.path, self._chat, self._answered_by = path, chat, answered_by
        self._answers: dict[str, str] = {}
        self._read_lines()

    def _read_lines(self) -> list[str]:
        """Return the lines of the file, and take over their answers: another process may have added some."""
        text = read_text(self.path) if self.path.exists() else ""
        lines = [line for line in text.split("\n") if line]  # an answer may hold other ends of lines, such as U+2028
        for number, line in enumerate(lines, start=1):
            try:
                entry = {name: require_text(value) for name, value in dict(json.loads(line)).items()}
                self._answers[question_digest(entry["system"], entry["question"])] = entry["answer"]
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise DataError(f"{self.path}, line {number}: not an entry of a transcript ({error!r})") from None
        return lines

    def ask(self, queries: Sequence[Query]) -> list[Answer]:
        """Answer every query, in order; `UserError` for a question that nothing answers. Queries have text only."""
        keys = [question_digest(query.system, question_text(query)) for query in queries]
        new = {key: query for key, query in zip(keys, queries, strict=True) if key not in self._answers}
        answers: dict[str, Answer] = {}
        if new:
            if self._chat is None:
                question = question_text(next(iter(new.values())))
                raise UserError(f"{self.path} has no answer to a question that starts with {question[:200]!r}")
            answers = dict(zip(new, self._chat.ask(list(new.values())), strict=True))
        for key, answer in answers.items():
            if answer.text is not None:
                self._store(key, new[key], answer.text)
        return [Answer(text=self._answers[key]) if key in self._answers else answers[key] for key in keys]

    def _store(self, key: str, query: Query, answer: str) -> None:
        entry = {"system": query.system, "question": question_text(query), "answer": answer, "by": self._answered_by}
        with update_in_turn(self.path):
            lines = self._read_lines()
            if key not in self._answers:
                self._answers[key] = answer
                # In ASCII: an answer may hold half a surrogate pair, which UTF-8 cannot.
                write_atomic(self.path, "".join(f"{line}\n" for line in [*lines, json.dumps(entry)]))


def require_text(value: object) -> str:
    """Return a text; `TypeError` for another value."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def question_text(query: Query) -> str:
    """Return the user's turn of a query without images."""
    assert all(isinstance(part, str) for part in query.parts), "a transcript holds text only"
    return "".join(part for part in query.parts if isinstance(part, str))


def question_digest(system: str, question: str) -> str:
    """Return the SHA-256 of a question."""
    return hashlib.sha256(json.dumps([system, question]).encode()).hexdigest()
