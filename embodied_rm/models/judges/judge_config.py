"""Who judges, as a user says it: a question or a released model, in this process or behind an endpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.errors import UserError, lookup
from embodied_rm.models.judges.questions import LOGPROB_QUESTIONS, TEXT_QUESTIONS, Question

JUDGE_TYPES = {
    "question": "any vision-language model, asked one of our questions",
    "robo_dopamine": "Robo-Dopamine's GRM",
    "vlac": "VLAC",
    "robo_reward": "RoboReward",
    "lrm": "Large Reward Models: three LoRA heads over one model",
    "robometer": "Robometer",
    "rewind": "ReWiND",
    "remote": "the model that a service of this package serves (embodied-rm serve)",
}
ENDPOINT_TYPES = ("question", "robo_dopamine")
"""Layouts that an endpoint can serve: generative models that are shown images."""
REMOTE_TYPE = "remote"
"""The layout that is no layout: the service knows what it serves."""
TEXT_ANSWERS, LOGPROB_ANSWERS = "text", "logprobs"
SHUFFLED_QUESTION = "shuffled"
"""The question about a whole video, of which nobody can be paid; the others are in `questions`."""


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """A judge in the place of a checkpoint."""

    type: str | None = None
    """One of `LAYOUTS`; None: the checkpoint judges."""
    folder: Path | None = None
    """With the released files, for a model in this process."""
    base_model: Path | None = None
    """Folder of the model that adapters are for, or that lacking files are of."""
    question: str = "progress"
    answer_mode: str = TEXT_ANSWERS
    views: tuple[str, ...] = ()
    """Views it is shown, in its order; none: all."""
    image_size: tuple[int, ...] = ()
    """Height and width at which it is shown them; none: as they were recorded."""
    device: str = "cpu"
    dtype: str = "float32"
    attn_implementation: str = "sdpa"
    batch_size: int = 16
    url: str | None = None
    """Of an OpenAI-compatible endpoint, in the place of a folder."""
    model: str | None = None
    """What the endpoint calls it."""
    api_key_env: str | None = None
    timeout_s: float = 60.0
    max_attempts: int = 4
    concurrency: int = 16

    def __post_init__(self) -> None:
        if self.type is None:
            return
        lookup(JUDGE_TYPES, self.type, "layout of a judge")
        if self.image_size and len(self.image_size) != 2:
            raise UserError(f"judge.image_size must be [height, width] or [], got {list(self.image_size)}")
        if self.batch_size < 1:
            raise UserError(f"judge.batch_size must be >= 1, got {self.batch_size}")
        if self.type == "question":
            lookup(QUESTIONS_BY_ANSWER_MODE, self.answer_mode, "value of judge.answer_mode")
            questions = dict.fromkeys(QUESTIONS_BY_ANSWER_MODE[self.answer_mode]) | dict.fromkeys(
                [SHUFFLED_QUESTION] * (self.answer_mode == TEXT_ANSWERS)
            )
            lookup(questions, self.question, f"question that is answered by {self.answer_mode}")

    def check_location(self) -> None:
        """Raises `UserError` unless it is said where the judge is, and it can be there."""
        if self.type == REMOTE_TYPE:
            if self.url is None or self.folder is not None:
                raise UserError("judge=remote needs the address of the service, judge.url=..., and no folder")
            return
        if (self.folder is None) == (self.url is None):
            raise UserError("a judge needs either judge.folder=..., its files, or judge.url=..., where it is served")
        if self.url is not None and self.model is None:
            raise UserError(f"judge.model must say what {self.url} calls the model")
        if self.url is not None and self.type not in ENDPOINT_TYPES:
            raise UserError(f"judge={self.type} runs in this process only: name judge.folder, not judge.url")


def judge_digest(config: JudgeConfig) -> str:
    """SHA-256 of all that decides how it judges: what it is asked, and every file of its folders."""
    settings = {key: str(value) for key, value in vars(config).items() if key not in ("folder", "base_model", "device")}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for folder in (config.folder, config.base_model):
        for path in sorted(folder.rglob("*")) if folder is not None else ():
            if path.is_file():
                digest.update(str(path.relative_to(folder)).encode())  # type: ignore[arg-type]
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


QUESTIONS_BY_ANSWER_MODE: Mapping[str, Mapping[str, Question]] = {
    TEXT_ANSWERS: TEXT_QUESTIONS,
    LOGPROB_ANSWERS: LOGPROB_QUESTIONS,
}
NO_JUDGE = JudgeConfig()
"""The checkpoint judges."""
