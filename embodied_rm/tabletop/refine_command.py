"""Config of `embodied-rm refine`, and the reward model that it names."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.api.in_context import DemonstrationKeys, demonstration_digest, open_demonstration_model
from embodied_rm.errors import UserError, lookup
from embodied_rm.models.checkpoint import load_progress_net, model_digest
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.judges.judge_config import JudgeConfig, judge_digest
from embodied_rm.models.judges.remote import RemoteRewardModel
from embodied_rm.models.judges.shuffled import OFFLINE_ONLY_MESSAGE
from embodied_rm.models.load_checkpoint import load_checkpoint
from embodied_rm.models.potential_fusion import FusionKind
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel, VideoRewardModel
from embodied_rm.paths import resolve_reward_model
from embodied_rm.rl.refine_config import USES_RECORDED, RefineConfig
from embodied_rm.score.async_labeling import LabelingConfig
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.training.teaching import TeachConfig

_GOAL_FREE_FUSIONS: tuple[FusionKind, ...] = ("incremental", "forward", "min", "mean", "inverse_variance")
GOAL_FREE_FUSIONS: dict[str, FusionKind] = {fusion: fusion for fusion in _GOAL_FREE_FUSIONS}
"""Fusions that need no goal image and no demonstration; refinement has neither."""
GOAL_FUSIONS = ("backward", "reference")  # fusions that need a goal image or a demonstration


@dataclass(frozen=True, kw_only=True)
class RefineCommand(DemonstrationKeys, RefineConfig):
    """Config of `refine`."""

    task: str
    policy: Path
    checkpoint: Path | None = None
    program: Path | None = None
    recorded_data: Path | None = None
    starts: Path | None = None
    fusion: str | None = None
    final_eval_episodes: int = 200
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    labeler: JudgeConfig = field(default_factory=JudgeConfig)
    """Judge that scores videos of the training, as labels for another model; it does not affect the reward."""
    labeling: LabelingConfig = field(default_factory=LabelingConfig)
    teach: TeachConfig = field(default_factory=TeachConfig)
    env: EnvConfig = field(default_factory=EnvConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fusion is not None:
            lookup(GOAL_FREE_FUSIONS, self.fusion, "fusion")
        if self.demonstration is not None and self.judge.type is not None:
            raise UserError(f"demonstration= and judge={self.judge.type} both select the reward model: set one of them")
        self.check_demonstration_keys(in_context=self.demonstration is not None)
        if self.reward.rule == "program" and self.program is None:
            raise UserError("reward.rule=program pays a reward program: set program=<file of embodied-rm write-reward>")
        if self.teach.every:
            self.check_teachable()
        if self.takeover.stall_steps and self.takeover.helper == "person" and self.env.num_envs != 1:
            raise UserError(
                f"takeover.helper=person acts in one environment: set env.num_envs=1, not {self.env.num_envs}"
            )
        if (self.algorithm in USES_RECORDED) != (self.recorded_data is not None):
            algorithms = " or ".join(USES_RECORDED)
            raise UserError(f"algorithm={algorithms} and recorded_data= belong together: set both, or neither")
        if self.program is not None and self.algorithm in USES_RECORDED:
            raise UserError(
                f"algorithm={self.algorithm} learns from recorded episodes, which have no output of program=: use ppo"
            )

    def check_teachable(self) -> None:
        """Raise `UserError` if the reward model cannot go on learning with these settings."""
        key = f"teach.every={self.teach.every}"
        if self.judge.type is not None or self.demonstration is not None:
            raise UserError(f"{key} trains a checkpoint of this package: leave judge= and demonstration= out")
        if self.reward.uses_simulator_only:
            raise UserError(f"{key} trains the reward model, and reward.rule={self.reward.rule} uses none")
        self.teach.check_algorithm(self.algorithm)


def load_reward_model(config: RefineCommand) -> DescribedRewardModel:
    """Load the reward model: the judge, the demonstrations, or the checkpoint with the fusion of the config.

    Raises `UserError` if the model does not know a view, or needs a goal image, a demonstration or whole videos.
    """
    if config.judge.type is not None:
        return open_causal_judge(config)
    if config.demonstration is not None:
        model: DescribedRewardModel = open_demonstration_model(config)
        source = config.demonstration
    else:
        source = resolve_reward_model(config.checkpoint)
        model = load_checkpoint(source)
    if isinstance(model, ProgressNet):
        return select_fusion(model, config, source)
    if config.fusion is not None:
        raise UserError(f"fusion is for a checkpoint of train or adapt, not for {source}")
    if not config.reward.uses_simulator_only:
        # The view of a single one may have any name; between cameras of one scene, the name decides.
        views = model.views if isinstance(model, DemonstrationModel) else model.input_spec.views
        check_views(config, config.env.views if views is None else views, source)
    return model


def reward_model_digest(config: RefineCommand) -> str:
    """SHA-256 of everything that decides the predictions of the reward model."""
    if config.judge.type is not None:
        return judge_digest(config.judge)
    if config.demonstration is not None:
        return demonstration_digest(config)
    return model_digest(resolve_reward_model(config.checkpoint))


def load_policy_encoder(config: RefineCommand, model: DescribedRewardModel) -> ProgressNet:
    """Return the model whose embeddings the policy observes: the reward model, or else the checkpoint."""
    return model if isinstance(model, ProgressNet) else load_progress_net(resolve_reward_model(config.checkpoint))


def open_causal_judge(config: RefineCommand) -> DescribedRewardModel:
    """Open the judge. Raises `UserError` if it scores whole videos only, or needs a view that is not rendered."""
    if config.fusion is not None:
        raise UserError(f"fusion is for a checkpoint of this package, not for judge={config.judge.type}")
    from embodied_rm.models.judges.factory import open_judge  # by transformers, which is optional

    judge = open_judge(config.judge)
    if isinstance(judge, VideoRewardModel):
        raise UserError(OFFLINE_ONLY_MESSAGE)
    config.reward.check_success_prediction(judge.capabilities.predicts_success)
    required_views, available_views = judge.input_spec.views or (), config.env.views
    if isinstance(judge, RemoteRewardModel):
        # A service accepts a subset of its views.
        required_views, available_views = available_views if judge.input_spec.views else (), required_views
    for view in required_views:
        lookup(dict.fromkeys(available_views), view, "view of the environments and the judge:")
    return judge


def select_fusion(model: ProgressNet, config: RefineCommand, folder: Path) -> ProgressNet:
    """Return the model with the fusion of the config. Raises `UserError` if it needs more than refinement has."""
    if config.fusion is not None:
        model = model.with_fusion(GOAL_FREE_FUSIONS[config.fusion])
    if config.reward.uses_simulator_only:
        return model
    if model.config.fusion in GOAL_FUSIONS:
        raise UserError(
            f"{folder} has fusion={model.config.fusion}, which needs a goal image or a demonstration, and "
            f"refinement has neither: set fusion to one of {', '.join(GOAL_FREE_FUSIONS)}"
        )
    check_views(config, model.config.views, folder)
    return model


def check_views(config: RefineCommand, known: Iterable[str], source: Path) -> None:
    """Raise `UserError` unless the model knows all views of the environments."""
    for view in config.env.views:
        lookup(dict.fromkeys(known), view, f"view of the reward model {source}")
