"""Comparison of two clips by a vision-language model, asked in both orders.

Source: RL-VLM-F (Wang et al., arXiv 2402.03681), which compares single images; a clip here is a few of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from embodied_rm.labels.comparisons import ClipAnswer
from embodied_rm.models.judges import parse, prompts
from embodied_rm.models.judges.chat import Answer, ChatModel, ContentPart, Query
from embodied_rm.types import Frames

CHOICES = ("A", "B", "C")
FRAMES_PER_CLIP = 3
CLIP_HEADER = "Clip {letter}, in this order:\n"
CLIPS_QUESTION = (
    "Both clips are of the same task, from different recordings. In which one is the task closer to being done? Answer "
    "with one letter: A, or B, or C if there is no difference."
)
ClipFrames = Mapping[str, Frames]  # view -> uint8 [T, H, W, 3]


class ClipJudge(Protocol):
    """Says which of two clips shows more of a task done."""

    def compare(self, pairs: Sequence[tuple[ClipFrames, ClipFrames]], instructions: Sequence[str]) -> list[ClipAnswer]:
        """Return one answer per pair of clips."""
        ...


class VlmClipJudge:
    """A vision-language model as a `ClipJudge`: it is asked with either clip first, and must not contradict itself."""

    def __init__(self, chat: ChatModel, *, use_logprobs: bool = False) -> None:
        """`use_logprobs`: whether the model is asked for the probabilities of the choices instead of a text."""
        self.chat, self.use_logprobs = chat, use_logprobs

    def compare(self, pairs: Sequence[tuple[ClipFrames, ClipFrames]], instructions: Sequence[str]) -> list[ClipAnswer]:
        """Return one answer per pair of clips, from two queries each."""
        both = zip(pairs, instructions, strict=True)
        queries = [self._query(clips, text) for (a, b), text in both for clips in ((a, b), (b, a))]
        letters = [read_letter(answer) for answer in self.chat.ask(queries)]
        return [combine_letters(*letters[index : index + 2]) for index in range(0, len(letters), 2)]

    def _query(self, clips: tuple[ClipFrames, ClipFrames], instruction: str) -> Query:
        parts: list[ContentPart] = [prompts.TASK_HEADER.format(instruction=instruction)]
        for letter, clip in zip(CHOICES, clips, strict=False):
            parts += clip_parts(CLIP_HEADER.format(letter=letter), clip)
        choices = CHOICES if self.use_logprobs else ()
        parts.append(CLIPS_QUESTION)
        return Query(parts=tuple(parts), system=prompts.SYSTEM_PROMPT, max_tokens=8, choices=choices)


def clip_parts(header: str, clip: ClipFrames) -> list[ContentPart]:
    """Return a header, and up to `FRAMES_PER_CLIP` timesteps of a clip with all their views, the last one included."""
    parts: list[ContentPart] = [header]
    length = len(next(iter(clip.values())))
    for number, index in enumerate(np.unique(np.linspace(0, length - 1, FRAMES_PER_CLIP).round().astype(int)), start=1):
        parts.append(prompts.FRAME_LABEL.format(number=number))
        for name, frames in clip.items():
            parts += [prompts.VIEW_LABEL.format(name=name), frames[index], "\n"]
    return parts


def read_letter(answer: Answer) -> str | None:
    """Return the chosen letter of an answer; None if it has none."""
    if answer.failure is not None:
        return None
    if answer.logprobs is not None:
        return max(answer.logprobs, key=lambda choice: answer.logprobs[choice])  # type: ignore[index]
    return parse.first_word(answer.text or "", CHOICES)


def combine_letters(letter: str | None, exchanged: str | None) -> ClipAnswer:
    """Return the answer of two letters; the second is of the same clips in the other order."""
    if letter is None or exchanged is None:
        return "unanswered"
    if "C" in (letter, exchanged):
        return "neither"
    if letter == exchanged:
        return "contradiction"
    return "first" if letter == "A" else "second"
