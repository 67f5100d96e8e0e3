"""Values in the answers of released models, as the code of their authors reads them (pure functions).

Where that code replaces an answer that it cannot read by 0, there is no value here. `nan` and `inf` are none either.
"""

import json
import math
import re

GRADE_PATTERN = re.compile(r"ANSWER:\s*+(\d{1,9}+)", re.IGNORECASE)
LONE_GRADE_PATTERN = re.compile(r"\b([1-5])\b")
JSON_PATTERN = re.compile(r"\{[^}]+\}")
COMPARISON_KEY, COMPLETION_KEY, PROGRESS_KEY = "more_complete_image", "task_completed", "completion_progress"
COMPARISON_SCORES = {"ImageA": -1.0, "ImageB": 1.0}
COMPARISON_PATTERN = re.compile(rf'"{COMPARISON_KEY}"\s*:\s*"(Image[AB])"')
COMPLETION_PATTERN = re.compile(rf'"{COMPLETION_KEY}"\s*:\s*"(yes|no)"', re.IGNORECASE)
PROGRESS_PATTERNS = (
    re.compile(rf'"{PROGRESS_KEY}"\s*:\s*"?(NA|[0-9.]+)', re.IGNORECASE),
    re.compile(r"\b(0(?:\.[0-9]+)?|1(?:\.0)?)\b"),
    re.compile(r"(?:progress|score)[:\s]*([0-9]*\.?[0-9]+)", re.IGNORECASE),
    re.compile(r"(?<![0-9])([0-9]++(?:\.[0-9]++)?+|\.[0-9]++)\s*+$"),  # ([0-9]*\.?[0-9]+)\s*$ in linear time
    re.compile(r"^([0-9]*\.?[0-9]+)"),
)
"""Where a progress is looked for, in this order, if the JSON has none."""
NO_PROGRESS = "NA"  # answer for a video without progress
LEADING_NUMBER_PATTERN = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)")


def read_grade(text: str) -> int | None:
    """Return RoboReward's grade from 1 to 5: the first after "ANSWER:", else the only one in the text.

    Its authors published no code. This is what the readers of Robometer and of Large Reward Models have in common.
    """
    match = GRADE_PATTERN.search(text)
    if match is not None and 1 <= int(match[1]) <= 5:
        return int(match[1])
    grades = set(LONE_GRADE_PATTERN.findall(text))
    return int(grades.pop()) if len(grades) == 1 else None


def read_hop(text: str) -> float | None:
    """Return Robo-Dopamine's hop in [-1, 1]: the percentage in the last `<score>` tag, else the whole text.

    A percentage beyond 100 is one of 100. A tag that is not closed has no value: its number may be cut off.
    """
    content = text.split("<score>")[-1]
    if content != text and "</score>" not in content:
        return None
    number = read_float(content.split("</score>")[0].replace("%", ""))
    return None if number is None else max(-100.0, min(100.0, number)) / 100


def read_comparison(text: str) -> float | None:
    """Return 1 if the second image is nearer to completion, -1 if the first is (Large Reward Models).

    It is that of the first JSON object, else the last image that the text names.
    """
    value = json_field(text, COMPARISON_KEY)
    if isinstance(value, str) and value in COMPARISON_SCORES:
        return COMPARISON_SCORES[value]
    match = COMPARISON_PATTERN.search(text)
    if match is not None:
        return COMPARISON_SCORES[match[1]]
    last = max(COMPARISON_SCORES, key=text.rfind)
    return COMPARISON_SCORES[last] if last in text else None


def read_completion(text: str) -> float | None:
    """Return 1 for a completed task, 0 for an incomplete one (Large Reward Models)."""
    matches = COMPLETION_PATTERN.findall(text)
    if matches:
        return float(matches[-1].lower() == "yes")
    if "no" in text.lower():
        return 0.0
    return 1.0 if "yes" in text.lower() else None


def read_progress(text: str) -> float | None:
    """Return the progress in [0, 1] (Large Reward Models): a value beyond is clipped, "NA" is 0."""
    value = json_field(text, PROGRESS_KEY)
    if isinstance(value, bool) or str(value).lower() in ("nan", "inf", "-inf"):
        return None
    matches = (pattern.search(text) for pattern in PROGRESS_PATTERNS)
    candidates = [str(value), *(match[1] for match in matches if match is not None)]
    return next((share for candidate in candidates if (share := read_share(candidate)) is not None), None)


def read_share(text: str) -> float | None:
    """Return a number clipped to [0, 1], 0 for "NA", None for another text."""
    if text.upper() == NO_PROGRESS:
        return 0.0
    number = read_float(text)
    return None if number is None else max(0.0, min(1.0, number))


def read_number(text: str) -> float | None:
    """Return VLAC's number: the whole text, or the number at its beginning, where its authors' code raises an error."""
    number = read_float(text)
    match = LEADING_NUMBER_PATTERN.match(text)
    return float(match[1]) if number is None and match is not None else number


def read_float(text: str) -> float | None:
    """Return a finite number as Python reads it; None for another text."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def json_field(text: str, key: str) -> object | None:
    """Return the value of a key in the first JSON object of a text; None if there is none."""
    match = JSON_PATTERN.search(text[: text.rfind("}") + 1])  # without it, each "{" is searched to the end
    try:
        fields = json.loads(match[0]) if match is not None else None
    except (ValueError, RecursionError):
        return None
    return fields.get(key) if isinstance(fields, dict) else None
