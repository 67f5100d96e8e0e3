"""Configuration of a judge: a question or a released model, in this process or behind an endpoint."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from embodied_rm.errors import UserError, check_minimum, lookup
from embodied_rm.models.goal_images import read_image_file
from embodied_rm.models.judges.frame_selection import EVEN, SELECTIONS
from embodied_rm.models.judges.questions import LOGPROB_QUESTIONS, TEXT_QUESTIONS, Question, VideoQuestion

JUDGE_TYPES = {
    "question": "any vision-language model with a question of this package",
    "robo_dopamine": "Robo-Dopamine's GRM",
    "vlac": "VLAC",
    "robo_reward": "RoboReward",
    "lrm": "Large Reward Models: three LoRA heads over one model",
    "robometer": "Robometer",
    "rewind": "ReWiND",
    "topreward": "TOPReward: a question of its own to any Qwen3-VL",
    "sarm": "SARM in LeRobot's layout",
    "r3m": "distance to a goal image in the embedding of R3M",
    "vip": "distance to a goal image in the embedding of VIP",
    "liv": "distance to a goal image or to the instruction in the embedding of LIV",
    "remote": "the model that a service of this package serves (embodied-rm serve)",
}
ENDPOINT_TYPES = ("question", "robo_dopamine")
"""Types that an OpenAI-compatible endpoint can serve: generative models with image inputs."""
READOUTS = {
    "online": "the authors' reward of an environment: the last of 16 frames after the first one",
    "offline": "their labels of recorded episodes: the last frame, without repetitions",
}
"""Readouts of ReWiND."""
REMOTE_TYPE, SARM_TYPE = "remote", "sarm"
GOAL_FREE_TYPES = (REMOTE_TYPE, SARM_TYPE, "rewind", "robometer", "robo_reward", "topreward")
"""Types that show their model no goal image."""
ENDPOINT_SETTINGS = ("model", "api_key_env", "timeout_s", "max_attempts", "concurrency", "reasoning_tokens")
LOCAL_SETTINGS = ("base_model", "device", "dtype", "attn_implementation", "batch_size")
TEXT_ANSWERS, LOGPROB_ANSWERS = "text", "logprobs"
SHUFFLED_QUESTION = "shuffled"
"""The question about a complete video, offline only. The other questions are in `questions`."""


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """A judge that replaces the checkpoint."""

    type: str | None = None  # One of `JUDGE_TYPES`. None: the checkpoint is used.
    folder: Path | None = None  # folder of the released files, for a model in this process
    base_model: Path | None = None  # folder of the base model of adapters, or of files that the release lacks
    goal_images: tuple[Path, ...] = ()  # of every episode, each named after its view
    question: str = "progress"
    answer_mode: str = TEXT_ANSWERS
    readings: int = 1  # of question: 1, or 3 by a conservative, a neutral and an aggressive reader
    frames: str = EVEN  # of a question about the video so far: one of `SELECTIONS`
    frame_encoder: str = "efficientnet_lite0"  # of frames=relevant: it, or an open_clip model
    readout: str = "online"  # of ReWiND: one of `READOUTS`
    views: tuple[str, ...] = ()  # Views that it gets, in this order. Empty: all.
    image_size: tuple[int, ...] = ()  # Height and width of its images, in pixels. Empty: as recorded.
    device: str = "cpu"
    dtype: str = "float32"
    attn_implementation: str = "sdpa"
    batch_size: int = 16
    url: str | None = None  # OpenAI-compatible endpoint or reward service, instead of a folder
    model: str | None = None  # name of the model at the endpoint
    api_key_env: str | None = None
    timeout_s: float = 60.0
    max_attempts: int = 4
    concurrency: int = 16
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        if self.type is None:
            return
        lookup(JUDGE_TYPES, self.type, "type of a judge")
        lookup(READOUTS, self.readout, "value of judge.readout")
        if self.readout != JudgeConfig.readout and self.type != "rewind":
            raise UserError(f"judge.readout={self.readout} is a setting of judge=rewind, not of judge={self.type}")
        if self.image_size and len(self.image_size) != 2:
            raise UserError(f"judge.image_size must be [height, width] or [], got {list(self.image_size)}")
        check_minimum(self, 1, "batch_size", prefix="judge.")
        if self.goal_images and (self.type in GOAL_FREE_TYPES or self.question == SHUFFLED_QUESTION):
            raise UserError(f"judge={self.type} takes no goal image: leave out judge.goal_images=")
        if self.readings != 1 and (self.readings != 3 or self.type != "question" or self.question == SHUFFLED_QUESTION):
            raise UserError(
                f"judge.readings={self.readings}: it is 1, or 3 for judge=question with a question about each frame"
            )
        self._check_question()
        self._check_frames()

    def _check_question(self) -> None:
        if self.type == "question":
            lookup(QUESTIONS_BY_ANSWER_MODE, self.answer_mode, "value of judge.answer_mode")
            questions = [*QUESTIONS_BY_ANSWER_MODE[self.answer_mode]]
            questions += [SHUFFLED_QUESTION] * (self.answer_mode == TEXT_ANSWERS)
            lookup(dict.fromkeys(questions), self.question, f"question for answer_mode={self.answer_mode}")

    def _check_frames(self) -> None:
        lookup(SELECTIONS, self.frames, "value of judge.frames")
        if self.frames == EVEN:
            if self.frame_encoder != JudgeConfig.frame_encoder:
                raise UserError(f"judge.frame_encoder={self.frame_encoder} is a setting of judge.frames=relevant")
            return
        question = QUESTIONS_BY_ANSWER_MODE[self.answer_mode].get(self.question) if self.type == "question" else None
        if not isinstance(question, VideoQuestion):
            raise UserError(
                f"judge.frames={self.frames} is a setting of judge=question with a question about the video so far, "
                f"{' or '.join(VIDEO_QUESTIONS)}"
            )

    @property
    def frame_encoder_folder(self) -> Path | None:
        """Folder of the encoder that chooses frames; None: it has a name instead."""
        from embodied_rm.models.open_clip_config import LOCAL_PREFIX  # imports torch, which takes seconds

        name = self.frame_encoder
        return Path(name.removeprefix(LOCAL_PREFIX)) if name.startswith(LOCAL_PREFIX) else None

    def scoring_settings(self) -> dict[str, object]:
        """Return the settings that can change a score.

        Settings of `judge.frames=relevant` are among them only there: what was stored before they existed stays valid.
        """
        added_later = ("frames", "frame_encoder") if self.frames == EVEN else ()
        return {key: value for key, value in vars(self).items() if key not in added_later}

    def check_location(self) -> None:
        """Raise `UserError` unless the location of the judge is complete and fits its type."""
        if self.type == REMOTE_TYPE:
            if self.url is None or self.folder is not None:
                raise UserError("judge=remote needs the address of the service, judge.url=..., and no folder")
            return
        if (self.folder is None) == (self.url is None):
            raise UserError("a judge needs either its files, judge.folder=..., or its endpoint, judge.url=...")
        other, place = (ENDPOINT_SETTINGS, "folder") if self.url is None else (LOCAL_SETTINGS, "url")
        for name in other:
            if getattr(self, name) != getattr(JudgeConfig, name):
                raise UserError(f"judge.{name}= has no effect with judge.{place}=: leave it out")
        if self.url is not None and self.model is None:
            raise UserError(f"judge.model must name the model at {self.url}")
        if self.url is not None and self.type not in ENDPOINT_TYPES:
            raise UserError(f"judge={self.type} runs in this process only: set judge.folder, not judge.url")


def judge_digest(config: JudgeConfig) -> str:
    """Return the SHA-256 of everything that determines its scores: the settings and all files that they name."""
    folders = [config.folder, config.base_model, config.frame_encoder_folder]
    located = ["folder", "base_model", "device", "goal_images"] + ["frame_encoder"] * (folders[-1] is not None)
    settings = {key: str(value) for key, value in config.scoring_settings().items() if key not in located}
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path in config.goal_images:
        digest.update(path.stem.encode() + read_image_file(path))
    for folder in folders:
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
VIDEO_QUESTIONS = tuple(
    dict.fromkeys(
        name
        for questions in QUESTIONS_BY_ANSWER_MODE.values()
        for name, question in questions.items()
        if isinstance(question, VideoQuestion)
    )
)
"""Names of the questions about the video so far."""
NO_JUDGE = JudgeConfig()  # the configuration without a judge: the checkpoint is used
