"""Create the judge of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError, lookup
from embodied_rm.models.judges.chat import ChatModel
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig, read_api_key
from embodied_rm.models.judges.judge_config import QUESTIONS_BY_ANSWER_MODE, REMOTE_TYPE, SHUFFLED_QUESTION, JudgeConfig
from embodied_rm.models.judges.local import ATTENTION_IMPLEMENTATIONS, WEIGHT_DTYPES, LocalChat
from embodied_rm.models.judges.questions import Question
from embodied_rm.models.judges.remote import RemoteRewardModel
from embodied_rm.models.judges.shuffled import ShuffledJudge
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.released.lrm import LrmChat, LrmQuestion
from embodied_rm.models.released.rewind import RewindChat, RewindQuestion
from embodied_rm.models.released.robo_dopamine import PIXEL_LIMITS, RoboDopamineQuestion
from embodied_rm.models.released.robo_reward import RoboRewardQuestion
from embodied_rm.models.released.robometer import RobometerChat, RobometerQuestion
from embodied_rm.models.released.vlac import VlacChat, VlacQuestion
from embodied_rm.models.reward_model import InputSpec

SERVICE_RETRY_TIMEOUT_S = 600.0
"""Time for which requests to an unavailable service are repeated, in seconds."""


def open_judge(config: JudgeConfig) -> VlmJudge | ShuffledJudge | RemoteRewardModel:
    """Create the judge of a configuration whose `type` is not None.

    `UserError` if settings contradict each other, `CheckpointError` if a file of a model folder cannot be loaded.
    """
    assert config.type is not None
    config.check_location()
    if config.type == REMOTE_TYPE:
        return make_remote_model(config)
    lookup(WEIGHT_DTYPES, config.dtype, "value of judge.dtype")
    lookup(dict.fromkeys(ATTENTION_IMPLEMENTATIONS), config.attn_implementation, "value of judge.attn_implementation")
    image_size = config.image_size or None
    input_spec = InputSpec(
        views=config.views or None, image_size=None if image_size is None else (image_size[0], image_size[1])
    )
    if config.type == "question" and config.question == SHUFFLED_QUESTION:
        return ShuffledJudge(make_chat(config), input_spec)
    chat, question = JUDGE_FACTORIES[config.type](config)
    return VlmJudge(chat, question, input_spec)


def make_remote_model(config: JudgeConfig) -> RemoteRewardModel:
    """Connect to the model of a reward service; `ServiceError` if it cannot be reached."""
    assert config.url is not None
    try:
        from embodied_rm.client.reward_client import RewardClient  # by httpx, which is optional
    except ModuleNotFoundError as error:
        raise UserError("the client of a service needs httpx: pip install httpx") from error
    return RemoteRewardModel(
        RewardClient(
            config.url,
            api_key=read_api_key(config.api_key_env),
            request_timeout_s=config.timeout_s,
            retry_timeout_s=SERVICE_RETRY_TIMEOUT_S,
        )
    )


def runtime_options(config: JudgeConfig) -> dict[str, Any]:
    """Return the runtime settings of a model in this process."""
    names = ("device", "dtype", "attn_implementation", "batch_size")
    return {name: getattr(config, name) for name in names}


def make_chat(config: JudgeConfig, pixel_limits: tuple[int, int] | None = None) -> ChatModel:
    """Create a generative model from its folder or endpoint. `pixel_limits`: see `LocalChat`."""
    if config.url is None:
        assert config.folder is not None
        return LocalChat(config.folder, pixel_limits=pixel_limits, **runtime_options(config))
    assert config.model is not None
    return EndpointChat(
        EndpointConfig(
            url=config.url,
            model=config.model,
            api_key_env=config.api_key_env,
            timeout_s=config.timeout_s,
            max_attempts=config.max_attempts,
            concurrency=config.concurrency,
        )
    )


def make_question_judge(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create any generative model with a question of `questions`."""
    return make_chat(config), QUESTIONS_BY_ANSWER_MODE[config.answer_mode][config.question]


def make_robo_dopamine(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create Robo-Dopamine; its three cameras are `config.views`."""
    return make_chat(config, PIXEL_LIMITS), RoboDopamineQuestion(config.views)


def make_robo_reward(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create RoboReward; its camera is the first of `config.views`."""
    return make_chat(config), RoboRewardQuestion(config.views)


def make_lrm(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create a Large Reward Model; its camera is the first of `config.views`."""
    folder, base_model = require_base_model(config)
    return LrmChat(folder, base_model, **runtime_options(config)), LrmQuestion(config.views)


def make_vlac(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create VLAC; its camera is the first of `config.views`."""
    assert config.folder is not None
    return VlacChat(config.folder, **runtime_options(config)), VlacQuestion(config.views)


def make_robometer(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create Robometer; it scores every camera separately."""
    folder, base_model = require_base_model(config)
    return RobometerChat(folder, base_model, **runtime_options(config)), RobometerQuestion()


def make_rewind(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create ReWiND; it scores every camera separately."""
    folder, base_model = require_base_model(config)
    return RewindChat(folder, base_model, device=config.device), RewindQuestion()


def require_base_model(config: JudgeConfig) -> tuple[Path, Path]:
    """Return the folders of the released files and of the base model; `UserError` without the latter."""
    assert config.folder is not None
    if config.base_model is None:
        raise UserError(f"judge={config.type} needs judge.base_model=..., {BASE_MODEL_HINTS[config.type or '']}")
    return config.folder, config.base_model


BASE_MODEL_HINTS = {
    "lrm": "the folder of the Qwen3-VL that the adapters were trained on",
    "robometer": "the folder of the Qwen3-VL that Robometer was trained from; its processor is used",
    "rewind": "a folder with the encoders in dinov2/ and minilm/",
}
JudgeFactory = Callable[[JudgeConfig], tuple[ChatModel, Question]]
JUDGE_FACTORIES: Mapping[str, JudgeFactory] = {
    "question": make_question_judge,
    "robo_dopamine": make_robo_dopamine,
    "vlac": make_vlac,
    "robo_reward": make_robo_reward,
    "lrm": make_lrm,
    "robometer": make_robometer,
    "rewind": make_rewind,
}
