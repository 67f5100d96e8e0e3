"""Parse answers (pure functions): a number, a choice, or None if the text has no valid one."""

import math
import re
from collections.abc import Mapping, Sequence

PROGRESS_PATTERN = re.compile(r"<progress>\s*([+-]?\d+(?:\.\d+)?\s*%?)\s*</progress>", re.IGNORECASE)
ANSWER_PATTERN = re.compile(r"ANSWER:\s*\**\s*(\w+)", re.IGNORECASE)
WORD_PATTERN = re.compile(r"[A-Za-z]+")
PUNCTUATION = " \t\n.,:;!*_`'\""


def progress(text: str) -> float | None:
    """Return the last `<progress>40%</progress>` as 0.4; None if it is missing or no percentage."""
    matches = PROGRESS_PATTERN.findall(text)
    return percentage(matches[-1]) if matches else None


def percentage(number: str) -> float | None:
    """Return a number with or without a percent sign, divided by 100; None if it is outside 0 to 100.

    A decimal up to 1 without the sign has no value either: "0.4" may be a percentage or a share.
    """
    value = float(number.rstrip("% "))
    is_ambiguous = 0 < value <= 1 and "." in number and not number.endswith("%")
    return value / 100 if 0 <= value <= 100 and not is_ambiguous else None


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


def normalize_logprobs(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each choice, normalized over the choices."""
    max_logprob = max(logprobs.values())
    weights = {choice: math.exp(value - max_logprob) for choice, value in logprobs.items()}
    return {choice: weight / sum(weights.values()) for choice, weight in weights.items()}
