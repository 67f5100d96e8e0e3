"""From what a user says to the judge that is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from embodied_rm.errors import lookup
from embodied_rm.models.base import Sight
from embodied_rm.models.judges.chat import Chat
from embodied_rm.models.judges.config import QUESTIONS_OF, JudgeConfig
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig
from embodied_rm.models.judges.local import ATTENTION, DTYPES, LocalChat
from embodied_rm.models.judges.questions import Question
from embodied_rm.models.judges.vlm_judge import VlmJudge


def open_judge(config: JudgeConfig) -> VlmJudge:
    """The judge of a configuration that names one. Raises `UserError` for what does not fit together, and
    `CheckpointError` naming the file of a folder that cannot be loaded."""
    assert config.layout is not None
    config.refuse_homeless()
    lookup(DTYPES, config.dtype, "value of judge.dtype")
    lookup(dict.fromkeys(ATTENTION), config.attention, "value of judge.attention")
    height_width = config.image_size or None
    sight = Sight(
        views=config.views or None, image_size=None if height_width is None else (height_width[0], height_width[1])
    )
    chat, question = MAKERS[config.layout](config)
    return VlmJudge(chat, question, sight)


def chat_of(config: JudgeConfig) -> Chat:
    """A generative model, from its folder or behind its endpoint."""
    if config.url is None:
        assert config.folder is not None
        return LocalChat(
            config.folder,
            device=config.device,
            dtype=config.dtype,
            attention=config.attention,
            batch=config.batch,
        )
    assert config.model is not None
    return EndpointChat(
        EndpointConfig(
            url=config.url,
            model=config.model,
            key_variable=config.key_variable,
            timeout=config.timeout,
            attempts=config.attempts,
            concurrency=config.concurrency,
        )
    )


def by_question(config: JudgeConfig) -> tuple[Chat, Question]:
    """Any generative model, asked one of our questions."""
    return chat_of(config), QUESTIONS_OF[config.answers][config.question]


Maker = Callable[[JudgeConfig], tuple[Chat, Question]]
MAKERS: Mapping[str, Maker] = {"question": by_question}
