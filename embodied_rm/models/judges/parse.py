"""Parse answers (pure functions): a number, a choice, or None if the text has no valid one."""

import json
import math
import re
from collections.abc import Mapping, Sequence

PROGRESS_PATTERN = re.compile(r"<progress>\s*([+-]?\d+(?:\.\d+)?)\s*%?\s*</progress>", re.IGNORECASE)
ANSWER_PATTERN = re.compile(r"ANSWER:\s*\**\s*(\w+)", re.IGNORECASE)
WORD_PATTERN = re.compile(r"[A-Za-z]+")
PUNCTUATION = " \t\n.,:;!*_`'\""
JSON_OBJECT_PATTERN = re.compile(r"\{[^{}]*\}", re.DOTALL)


def progress(text: str) -> float | None:
    """Return the last `<progress>40%</progress>` as 0.4; None if it is missing or outside 0 to 100 %."""
    return percent(PROGRESS_PATTERN, text)


def percent(pattern: re.Pattern[str], text: str, low: float = 0.0) -> float | None:
    """Return the last number that the pattern's group matches, divided by 100; None if it is outside [low, 1]."""
    matches = pattern.findall(text)
    value = float(matches[-1]) / 100 if matches else math.nan
    return value if low <= value <= 1 else None


def answer(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice after the last "ANSWER:"; None if there is none."""
    matches = ANSWER_PATTERN.findall(text)
    return match_choice(matches[-1], choices) if matches else None


def first_word(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice that is the first word; None if the first word is not a choice."""
    match = WORD_PATTERN.search(text)
    return match_choice(match.group(), choices) if match else None


def match_choice(word: str, choices: Sequence[str]) -> str | None:
    """Return the choice that equals a word in `fold_choice`; None if there is none."""
    return next((choice for choice in choices if fold_choice(choice) == fold_choice(word)), None)


def fold_choice(text: str) -> str:
    """Return a text without case, surrounding white space and punctuation, which " Yes." and "yes" share."""
    return text.strip(PUNCTUATION).casefold()


def json_field(text: str, name: str) -> object | None:
    """Return the value of a key in the last valid JSON object of a text; None if there is none."""
    for json_text in reversed(JSON_OBJECT_PATTERN.findall(text)):
        try:
            value = json.loads(json_text)
        except ValueError:
            continue
        return value.get(name)
    return None


def normalize_logprobs(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each choice, normalized over the choices."""
    max_logprob = max(logprobs.values())
    weights = {choice: math.exp(value - max_logprob) for choice, value in logprobs.items()}
    return {choice: weight / sum(weights.values()) for choice, weight in weights.items()}
