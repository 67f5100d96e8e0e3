"""What an answer says (pure): a number, a choice, or None where it says nothing of the kind."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

PROGRESS_PATTERN = re.compile(r"<progress>\s*([+-]?\d+(?:\.\d+)?)\s*%?\s*</progress>", re.IGNORECASE)
ANSWER_PATTERN = re.compile(r"ANSWER:\s*\**\s*(\w+)", re.IGNORECASE)
WORD_PATTERN = re.compile(r"[A-Za-z]+")
JSON_OBJECT_PATTERN = re.compile(r"\{[^{}]*\}", re.DOTALL)


def progress(text: str) -> float | None:
    """The last `<progress>40%</progress>`, as 0.4. None without one, and for one beyond 0 to 100 %."""
    return percent(PROGRESS_PATTERN, text)


def percent(pattern: re.Pattern[str], text: str, low: float = 0.0) -> float | None:
    """The last number that the pattern's group finds, in hundredths, in [low, 1]; None where there is none such."""
    matches = pattern.findall(text)
    value = float(matches[-1]) / 100 if matches else math.nan
    return value if low <= value <= 1 else None


def answer(text: str, choices: Sequence[str]) -> str | None:
    """What stands behind the last "ANSWER:", in its spelling among the choices; None when it is none of them."""
    matches = ANSWER_PATTERN.findall(text)
    return match_choice(matches[-1], choices) if matches else None


def first_word(text: str, choices: Sequence[str]) -> str | None:
    """The first word, in its spelling among the choices; None when it is none of them."""
    match = WORD_PATTERN.search(text)
    return match_choice(match.group(), choices) if match else None


def match_choice(word: str, choices: Sequence[str]) -> str | None:
    """The choice that a word is, upper and lower case aside; None when it is none."""
    return next((choice for choice in choices if choice.lower() == word.lower()), None)


def json_field(text: str, name: str) -> object | None:
    """What the last JSON object in a text has under a name; None where there is none."""
    for json_text in reversed(JSON_OBJECT_PATTERN.findall(text)):
        try:
            value = json.loads(json_text)
        except ValueError:
            continue
        return value.get(name)
    return None


def normalize_logprobs(logprobs: Mapping[str, float]) -> dict[str, float]:
    """What each choice counts among those asked for; they sum to 1."""
    max_logprob = max(logprobs.values())
    weights = {choice: math.exp(value - max_logprob) for choice, value in logprobs.items()}
    return {choice: weight / sum(weights.values()) for choice, weight in weights.items()}
