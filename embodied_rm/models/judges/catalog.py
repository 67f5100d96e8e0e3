"""From what a user says to the judge that is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError, lookup
from embodied_rm.models.base import Sight
from embodied_rm.models.judges.chat import Chat
from embodied_rm.models.judges.config import QUESTIONS_OF, SERVED_HERE, SHUFFLED, JudgeConfig
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig, key_in
from embodied_rm.models.judges.local import ATTENTION, DTYPES, LocalChat
from embodied_rm.models.judges.questions import Question
from embodied_rm.models.judges.served import ServedModel
from embodied_rm.models.judges.shuffled import ShuffledJudge
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.released.lrm import HeadsChat, Three
from embodied_rm.models.released.rewind import RewindChat, Sixteen
from embodied_rm.models.released.robo_dopamine import PIXELS, Hops
from embodied_rm.models.released.robo_reward import Grade
from embodied_rm.models.released.robometer import LastFrame, RobometerChat
from embodied_rm.models.released.vlac import Critic, VlacChat

PATIENCE = 600.0
"""Seconds for which a run waits for a service that is away."""


def open_judge(config: JudgeConfig) -> VlmJudge | ShuffledJudge | ServedModel:
    """The judge of a configuration that names one. Raises `UserError` for what does not fit together, and
    `CheckpointError` naming the file of a folder that cannot be loaded."""
    assert config.layout is not None
    config.refuse_homeless()
    if config.layout == SERVED_HERE:
        return served_model(config)
    lookup(DTYPES, config.dtype, "value of judge.dtype")
    lookup(dict.fromkeys(ATTENTION), config.attention, "value of judge.attention")
    height_width = config.image_size or None
    sight = Sight(
        views=config.views or None, image_size=None if height_width is None else (height_width[0], height_width[1])
    )
    if config.layout == "question" and config.question == SHUFFLED:
        return ShuffledJudge(chat_of(config), sight)
    chat, question = MAKERS[config.layout](config)
    return VlmJudge(chat, question, sight)


def served_model(config: JudgeConfig) -> ServedModel:
    """The model of a service. Raises `ServiceError` where that cannot be reached."""
    assert config.url is not None
    try:
        from embodied_rm.serve.client.reward_client import RewardClient  # by httpx, which is optional
    except ModuleNotFoundError as fault:
        raise UserError("a service is asked by httpx: pip install 'embodied-rm[endpoint]'") from fault
    return ServedModel(
        RewardClient(config.url, key=key_in(config.key_variable), timeout=config.timeout, patience=PATIENCE)
    )


def how(config: JudgeConfig) -> dict[str, Any]:
    """How a model in this process runs."""
    names = ("device", "dtype", "attention", "batch")
    return {name: getattr(config, name) for name in names}


def chat_of(config: JudgeConfig, pixels: tuple[int, int] | None = None) -> Chat:
    """A generative model, from its folder or behind its endpoint; `pixels`: see `LocalChat`."""
    if config.url is None:
        assert config.folder is not None
        return LocalChat(config.folder, pixels=pixels, **how(config))
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


def robo_dopamine(config: JudgeConfig) -> tuple[Chat, Question]:
    """Its three cameras are `views`."""
    return chat_of(config, PIXELS), Hops(config.views)


def robo_reward(config: JudgeConfig) -> tuple[Chat, Question]:
    """Its camera is the first of `views`."""
    return chat_of(config), Grade(config.views)


def lrm(config: JudgeConfig) -> tuple[Chat, Question]:
    """Its camera is the first of `views`."""
    folder, base = at_home(config)
    return HeadsChat(folder, base, **how(config)), Three(config.views)


def vlac(config: JudgeConfig) -> tuple[Chat, Question]:
    """Its camera is the first of `views`."""
    assert config.folder is not None
    return VlacChat(config.folder, **how(config)), Critic(config.views)


def robometer(config: JudgeConfig) -> tuple[Chat, Question]:
    """All cameras, each by itself."""
    folder, base = at_home(config)
    return RobometerChat(folder, base, **how(config)), LastFrame()


def rewind(config: JudgeConfig) -> tuple[Chat, Question]:
    """All cameras, each by itself."""
    folder, base = at_home(config)
    return RewindChat(folder, base, device=config.device), Sixteen()


def at_home(config: JudgeConfig) -> tuple[Path, Path]:
    """The released files, and those of what they were made from. Raises `UserError` where one is not named."""
    assert config.folder is not None
    if config.base is None:
        raise UserError(f"judge={config.layout} needs judge.base=..., {BASES[config.layout or '']}")
    return config.folder, config.base


BASES = {
    "lrm": "the folder of the Qwen3-VL that its adapters are for",
    "robometer": "the folder of the Qwen3-VL that it was made from, whose processor it uses",
    "rewind": "a folder with its encoders in dinov2/ and minilm/",
}
Maker = Callable[[JudgeConfig], tuple[Chat, Question]]
MAKERS: Mapping[str, Maker] = {
    "question": by_question,
    "robo_dopamine": robo_dopamine,
    "vlac": vlac,
    "robo_reward": robo_reward,
    "lrm": lrm,
    "robometer": robometer,
    "rewind": rewind,
}
