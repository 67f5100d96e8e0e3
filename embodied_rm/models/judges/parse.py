"""What an answer says (pure): a number, a choice, or None where it says nothing of the kind."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

PROGRESS = re.compile(r"<progress>\s*([+-]?\d+(?:\.\d+)?)\s*%?\s*</progress>", re.IGNORECASE)
ANSWER = re.compile(r"ANSWER:\s*\**\s*(\w+)", re.IGNORECASE)
WORD = re.compile(r"[A-Za-z]+")
OBJECT = re.compile(r"\{[^{}]*\}", re.DOTALL)


def progress(text: str) -> float | None:
    """The last `<progress>40%</progress>`, as 0.4. None without one, and for one beyond 0 to 100 %."""
    return percent(PROGRESS, text)


def percent(pattern: re.Pattern[str], text: str, low: float = 0.0) -> float | None:
    """The last number that the pattern's group finds, in hundredths, in [low, 1]; None where there is none such."""
    found = pattern.findall(text)
    value = float(found[-1]) / 100 if found else math.nan
    return value if low <= value <= 1 else None


def answer(text: str, among: Sequence[str]) -> str | None:
    """What stands behind the last "ANSWER:", in its spelling among the choices; None when it is none of them."""
    found = ANSWER.findall(text)
    return spelled(found[-1], among) if found else None


def first_word(text: str, among: Sequence[str]) -> str | None:
    """The first word, in its spelling among the choices; None when it is none of them."""
    found = WORD.search(text)
    return spelled(found.group(), among) if found else None


def spelled(word: str, among: Sequence[str]) -> str | None:
    """The choice that a word is, upper and lower case aside; None when it is none."""
    return next((choice for choice in among if choice.lower() == word.lower()), None)


def field(text: str, name: str) -> object | None:
    """What the last JSON object in a text has under a name; None where there is none."""
    for found in reversed(OBJECT.findall(text)):
        try:
            value = json.loads(found)
        except ValueError:
            continue
        return value.get(name)
    return None


def probabilities(logprobs: Mapping[str, float]) -> dict[str, float]:
    """What each choice counts among those asked for; they sum to 1."""
    highest = max(logprobs.values())
    weights = {choice: math.exp(value - highest) for choice, value in logprobs.items()}
    return {choice: weight / sum(weights.values()) for choice, weight in weights.items()}
