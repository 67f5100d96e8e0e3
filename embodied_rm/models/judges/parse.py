"""Parse answers (pure functions): a number, a choice, or None if the text has no valid one."""

import math
import re
from collections.abc import Mapping, Sequence

# A part that gives nothing back ("*+") keeps the time linear: a model may answer a million spaces.
PROGRESS_PATTERN = re.compile(r"\s*+([+-]?\d++(?:\.\d++)?+\s*+%?)\s*+</progress>", re.IGNORECASE)
PROGRESS_TAG = re.compile("<progress>", re.IGNORECASE)
ANSWER_TAG = re.compile(r"ANSWER:[\s*]*(\w+)", re.IGNORECASE)
FURTHER_NUMBER = re.compile(
    r"[.,\u2026]+\d"  # a decimal
    r"|[\s*]*[^\w\s./(*]+[\s*]*\d"  # a sign of a range or of a list
    r"|[\s*(]*(?:or|to|and|through|until|bis|oder|und|ou|et|\u00e0|a|o|y)\b(?:\s+\w+)?[\s*]*\d",
    re.IGNORECASE,
)
"""What follows a number that is no answer: 4.5, "3-4" or "3 or 4". "4/5" is a 4."""
WORD_PATTERN = re.compile(r"[A-Za-z]+")
LETTER_END_PATTERN = re.compile(r"\s*(?:$|[^\w\s]|is\b|because\b|\n)")
"""What follows a letter that is an answer; the article "A" is followed by a word."""
NO_END_PATTERN = re.compile(
    r"\s*(?:$|[^\w\s]|\n|(?:the|it|this|that|there|they|its|a|an|as|because|since|not)\b)", re.IGNORECASE
)
"""What follows a "no" that is an answer; in "No image was provided", it is none."""
THINKING_TAGS = r"<{0}(?:think|thinking|thought|reasoning|seed:think)>|\[{0}THINK\]|\u25c1{0}think\u25b7"
THINKING_TAG = "<think>"
THINKING_OPEN = re.compile(THINKING_TAGS.format(""), re.IGNORECASE)
THINKING_CLOSE = re.compile(THINKING_TAGS.format("/"), re.IGNORECASE)
OPEN_AT_END = re.compile(f"(?:{THINKING_TAGS.format('')})$", re.IGNORECASE)
PUNCTUATION = " \t\n.,:;!*_`'\""


def conclusion(text: str) -> str:
    """Return an answer without the reasoning before it; "" if it ends within the reasoning."""
    start = conclusion_start(text)
    return "" if start is None else text[start:]


def conclusion_start(text: str) -> int | None:
    """Return where an answer begins, after its reasoning; None if it ends within the reasoning."""
    *_, end = (0, *(match.end() for match in THINKING_CLOSE.finditer(text)))
    return None if THINKING_OPEN.match(text[end:].lstrip()) else end


def opens_reasoning(prompt: str) -> bool:
    """Return whether a prompt ends with the tag of a reasoning, which the answer then goes on with."""
    return OPEN_AT_END.search(prompt.rstrip()) is not None


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
    """Return the choice after the last "ANSWER:"; None if there is none, or more than one number."""
    text = conclusion(text)
    *_, last = (None, *ANSWER_TAG.finditer(text))
    if last is None or FURTHER_NUMBER.match(text, last.end()):
        return None
    return match_choice(last[1], choices)


def first_word(text: str, choices: Sequence[str]) -> str | None:
    """Return the choice that is the first word.

    None if the first word is not a choice, another choice follows as an answer ("Yes/No", "No problem: yes"), or the
    word goes on as a sentence ("A robot holds it", "No image was provided").
    """
    text = conclusion(text)
    words = list(WORD_PATTERN.finditer(text))
    selected = match_choice(words[0].group(), choices) if words else None
    if selected is None or not is_answer(selected, text, words[0].end()):
        return None
    # A letter is also the name of what the answer explains: "B: in A, the cube lies on the table".
    others = (*words[1:2], words[-1]) if len(selected) == 1 else words[1:]
    found = [(choice, word.end()) for word in others if (choice := match_choice(word.group(), choices)) is not None]
    return None if any(choice != selected and is_answer(choice, text, end) for choice, end in found) else selected


def is_answer(choice: str, text: str, end: int) -> bool:
    """Return whether a choice that ends at `end` in a text is an answer, and not an article of what follows."""
    if len(choice) == 1:
        return LETTER_END_PATTERN.match(text, end) is not None
    return fold_choice(choice) != "no" or NO_END_PATTERN.match(text, end) is not None


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
