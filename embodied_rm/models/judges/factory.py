"""Create the judge of a configuration."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from embodied_rm.client.reward_client import RewardClient
from embodied_rm.errors import UserError, lookup
from embodied_rm.models.goal_images import read_goal_images
from embodied_rm.models.judges.chat import ChatModel
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig, read_api_key
from embodied_rm.models.judges.frame_encoders import open_frame_encoder
from embodied_rm.models.judges.frame_selection import RELEVANT, RelevantFrames
from embodied_rm.models.judges.judge_config import (
    QUESTIONS_BY_ANSWER_MODE,
    REMOTE_TYPE,
    SARM_TYPE,
    SHUFFLED_QUESTION,
    JudgeConfig,
)
from embodied_rm.models.judges.local import ATTENTION_IMPLEMENTATIONS, WEIGHT_DTYPES, LocalChat
from embodied_rm.models.judges.questions import Question, VideoQuestion
from embodied_rm.models.judges.readings import ThreeReadings
from embodied_rm.models.judges.remote import RemoteRewardModel
from embodied_rm.models.judges.shuffled import ShuffledJudge
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.model_folder import check_model_folder
from embodied_rm.models.released.goal_distance import GoalDistanceChat, GoalDistanceQuestion, ImageGoalQuestion
from embodied_rm.models.released.liv import LivEncoder
from embodied_rm.models.released.lrm import LrmChat, LrmQuestion
from embodied_rm.models.released.r3m import R3mEncoder
from embodied_rm.models.released.rewind import RewindChat, RewindQuestion
from embodied_rm.models.released.rewind_transformer import (
    RewindTransformerChat,
    RewindTransformerQuestion,
    has_transformer_layout,
)
from embodied_rm.models.released.robo_dopamine import PIXEL_LIMITS, RoboDopamineQuestion
from embodied_rm.models.released.robo_reward import RoboRewardQuestion
from embodied_rm.models.released.robometer import RobometerChat, RobometerQuestion
from embodied_rm.models.released.sarm import SarmJudge
from embodied_rm.models.released.topreward import TopRewardChat, TopRewardQuestion
from embodied_rm.models.released.vip import VipEncoder
from embodied_rm.models.released.vlac import VlacChat, VlacQuestion
from embodied_rm.models.reward_model import InputSpec

SERVICE_RETRY_TIMEOUT_S = 600.0  # time for which requests to an unavailable service are repeated, in seconds


def open_judge(config: JudgeConfig) -> VlmJudge | ShuffledJudge | SarmJudge | RemoteRewardModel:
    """Create the judge of a configuration whose `type` is not None.

    `UserError` if settings contradict each other, `CheckpointError` if a file of a model folder cannot be loaded.
    """
    assert config.type is not None
    config.check_location()
    for folder in (config.folder, config.base_model, config.frame_encoder_folder):
        if folder is not None:
            check_model_folder(folder)
    if config.type == REMOTE_TYPE:
        return make_remote_model(config)
    lookup(WEIGHT_DTYPES, config.dtype, "value of judge.dtype")
    lookup(dict.fromkeys(ATTENTION_IMPLEMENTATIONS), config.attn_implementation, "value of judge.attn_implementation")
    image_size = (config.image_size[0], config.image_size[1]) if config.image_size else None
    input_spec = InputSpec(views=config.views or None, image_size=image_size)
    if config.type == "question" and config.question == SHUFFLED_QUESTION:
        return ShuffledJudge(make_chat(config), input_spec)
    if config.type == SARM_TYPE:
        return SarmJudge(*require_base_model(config), input_spec, device=config.device)
    chat, question = JUDGE_FACTORIES[config.type](config)
    if config.readings == 3:
        question = ThreeReadings(question)
    goal = read_goal_images(config.goal_images, config.views or None) if config.goal_images else None
    if goal is not None and question.needs_goal:  # it leaves out cameras without a goal image
        input_spec = replace(input_spec, views=goal.names)
    return VlmJudge(chat, question, input_spec, goal)


def make_remote_model(config: JudgeConfig) -> RemoteRewardModel:
    """Connect to the model of a reward service; `ServiceError` if it cannot be reached."""
    assert config.url is not None
    options: dict[str, Any] = {"request_timeout_s": config.timeout_s, "retry_timeout_s": SERVICE_RETRY_TIMEOUT_S}
    return RemoteRewardModel(RewardClient(config.url, api_key=read_api_key(config.api_key_env), **options))


def runtime_options(config: JudgeConfig) -> dict[str, Any]:
    """Return the runtime settings of a model in this process."""
    names = ("device", "dtype", "attn_implementation", "batch_size")
    return {name: getattr(config, name) for name in names}


def make_chat(config: JudgeConfig, pixel_limits: tuple[int, int] | None = None) -> ChatModel:
    """Create a generative model from its folder or endpoint. `pixel_limits`: see `LocalChat`."""
    if config.url is None:
        return LocalChat(local_folder(config), pixel_limits=pixel_limits, **runtime_options(config))
    return EndpointChat(EndpointConfig(**{field.name: getattr(config, field.name) for field in fields(EndpointConfig)}))


def make_question(config: JudgeConfig) -> Question:
    """Return the question of a configuration, which shows the frames that `judge.frames` chooses."""
    question = QUESTIONS_BY_ANSWER_MODE[config.answer_mode][config.question]
    if config.frames != RELEVANT:
        return question
    assert isinstance(question, VideoQuestion)
    return question.with_selection(RelevantFrames(open_frame_encoder(config.frame_encoder)))


def make_goal_chat(config: JudgeConfig, encoder_class: type[R3mEncoder | LivEncoder]) -> GoalDistanceChat:
    """Create a frozen encoder that measures distances to a goal."""
    return GoalDistanceChat(encoder_class(local_folder(config), config.device), config.batch_size)


def local_folder(config: JudgeConfig) -> Path:
    """Return the folder of a model in this process."""
    assert config.folder is not None
    return config.folder


def require_base_model(config: JudgeConfig) -> tuple[Path, Path]:
    """Return the folders of the released files and of the base model; `UserError` without the latter."""
    if config.base_model is None:
        raise UserError(f"judge={config.type} needs judge.base_model=..., {BASE_MODEL_HINTS[config.type or '']}")
    return local_folder(config), config.base_model


def make_rewind(config: JudgeConfig) -> tuple[ChatModel, Question]:
    """Create ReWiND from a .pth of its authors, or from a folder in the layout of Robometer's authors."""
    folder, base_model = require_base_model(config)
    if not has_transformer_layout(folder):
        return RewindChat(folder, base_model, device=config.device), RewindQuestion(config.readout == "offline")
    if config.readout != JudgeConfig.readout:
        raise UserError(f"judge.readout={config.readout} is a setting of ReWiND's .pth, not of the layout of {folder}")
    return RewindTransformerChat(folder, base_model, device=config.device), RewindTransformerQuestion()


BASE_MODEL_HINTS = {
    "lrm": "the folder of the Qwen3-VL that the adapters were trained on",
    "robometer": "the folder of the Qwen3-VL that Robometer was trained from; its processor is used",
    "rewind": "a folder with the encoders in dinov2/ and minilm/",
    "sarm": "the folder of openai/clip-vit-base-patch32",
}
JUDGE_FACTORIES: Mapping[str, Callable[[JudgeConfig], tuple[ChatModel, Question]]] = {
    "question": lambda c: (make_chat(c), make_question(c)),
    "robo_dopamine": lambda c: (make_chat(c, PIXEL_LIMITS), RoboDopamineQuestion(c.views)),
    "vlac": lambda c: (VlacChat(local_folder(c), **runtime_options(c)), VlacQuestion(c.views)),
    "robo_reward": lambda c: (make_chat(c), RoboRewardQuestion(c.views)),
    "lrm": lambda c: (LrmChat(*require_base_model(c), **runtime_options(c)), LrmQuestion(c.views)),
    "robometer": lambda c: (RobometerChat(*require_base_model(c), **runtime_options(c)), RobometerQuestion()),
    "rewind": make_rewind,
    "topreward": lambda c: (TopRewardChat(local_folder(c), **runtime_options(c)), TopRewardQuestion(c.views)),
    "r3m": lambda c: (make_goal_chat(c, R3mEncoder), ImageGoalQuestion()),
    "vip": lambda c: (make_goal_chat(c, VipEncoder), ImageGoalQuestion()),
    "liv": lambda c: (make_goal_chat(c, LivEncoder), GoalDistanceQuestion()),
}
"""Type of a judge -> function that creates its model and its question."""
