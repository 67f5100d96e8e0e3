"""Parse answers (pure functions): a number, a choice, or None if the text has no valid one."""

import math
import re
from collections.abc import Mapping, Sequence

PROGRESS_PATTERN = re.compile(r"\s*([+-]?\d+(?:\.\d+)?\s*%?)\s*</progress>", re.IGNORECASE)
PROGRESS_TAG = re.compile("<progress>", re.IGNORECASE)
ANSWER_PATTERN = re.compile(r"ANSWER:\s*\**\s*(\w+)(?!\.\d|\s*(?:or|to|and|[-\u2013~])\s*\d)", re.IGNORECASE)
"""A choice after "ANSWER:"; 4.5 and "3 or 4" are none."""
WORD_PATTERN = re.compile(r"[A-Za-z]+")
LETTER_END_PATTERN = re.compile(r"\s*(?:$|[^\w\s]|is\b|because\b|\n)")
"""What follows a letter that is an answer; the article "A" is followed by a word."""
THINKING_OPEN, THINKING_CLOSE = "<think>", "</think>"
PUNCTUATION = " \t\n.,:;!*_`'\""


def conclusion(text: str) -> str:
    """Return an answer without the reasoning before it; "" if it ends within the reasoning."""
    reasoning, _, rest = text.rpartition(THINKING_CLOSE)
    return "" if not reasoning and rest.lstrip().startswith(THINKING_OPEN) else rest


def progress(text: str) -> float | None:
    """Return the last `<progress>40%</progress>` as 0.4; None if it is missing, cut off or no percentage."""
    *earlier, last = PROGRESS_TAG.split(conclusion(text))
    match = PROGRESS_PATTERN.match(last) if earlier else None
    return None if match is None else percentage(match[1])


def percentage(number: str) -> float | None:
    """Return a number with or without a percent sign, divided by 100; None if it is outside 0 to 100.

    A decimal up to 1 without the sign has no value either: "0.4" may be a percentage or a share.
    """
    value = float(number.rstrip("% "))
    is_ambiguous = 0 < value <= 1 and "." in number and not number.endswith("%")
    return value / 100 if 0 <= value <= 100 and not is_ambiguous else None


def answer(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice after the last "ANSWER:"; None if there is none."""
    last = conclusion(text).upper().rfind("ANSWER:")
    match = ANSWER_PATTERN.match(conclusion(text), last) if last >= 0 else None
    return match_choice(match[1], choices) if match else None


def first_word(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice that is the first word.

    None if the first word is not a choice, the second or last word is another one ("Yes/No", "No problem: yes"), or a
    choice of one letter goes on as a sentence ("A robot holds it").
    """
    text = conclusion(text)
    words = list(WORD_PATTERN.finditer(text))
    selected = match_choice(words[0].group(), choices) if words else None
    if selected is None or (len(selected) == 1 and LETTER_END_PATTERN.match(text, words[0].end()) is None):
        return None
    found = {match_choice(word.group(), choices) for word in (*words[:2], words[-1])}
    return selected if found <= {selected, None} else None


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
