"""A reward model that cannot be used in refinement is rejected before anything runs."""

from pathlib import Path

import pytest

from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.models.potential_fusion import FUSION_KINDS
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.tabletop.envs import EnvConfig
from embodied_rm.tabletop.refine_command import GOAL_FUSIONS, RefineCommand, load_reward_model


def make_command(folder: Path, rule: str = "shaped", fusion: str | None = None, view: str = "front") -> RefineCommand:
    reward = RewardConfig(rule=rule, success_source="simulator")
    env = EnvConfig(views=(view,))
    return RefineCommand(task="lift_cube", policy=folder, checkpoint=folder, fusion=fusion, env=env, reward=reward)


def fusion_of(command: RefineCommand) -> str:
    model = load_reward_model(command)
    assert isinstance(model, ProgressNet)
    return model.config.fusion


@pytest.mark.parametrize("fusion", FUSION_KINDS)
def test_goal_fusions_need_another_fusion_in_refinement(fusion, tmp_path: Path) -> None:
    save_progress_net(tmp_path, ProgressNet(NetConfig(views=("front",), fusion=fusion)), {})
    if fusion not in GOAL_FUSIONS:
        assert fusion_of(make_command(tmp_path)) == fusion
        return
    with pytest.raises(UserError, match=f"fusion={fusion}, which needs.*set fusion to one of incremental"):
        load_reward_model(make_command(tmp_path))
    assert fusion_of(make_command(tmp_path, fusion="min")) == "min"
    assert fusion_of(make_command(tmp_path, rule="sparse")) == fusion, "the rule does not use the model"


def test_the_model_must_know_the_views(tmp_path: Path) -> None:
    save_progress_net(tmp_path, ProgressNet(NetConfig(views=("front",))), {})
    with pytest.raises(UserError, match=r"unknown view of the reward model .* 'wrist'"):
        load_reward_model(make_command(tmp_path, view="wrist"))
    load_reward_model(make_command(tmp_path, rule="dense", view="wrist"))


def test_a_demonstration_and_a_judge_exclude_each_other(tmp_path: Path) -> None:
    command = {"task": "lift_cube", "policy": tmp_path}
    with pytest.raises(UserError, match="demonstration= and judge=question both select the reward model"):
        RefineCommand(**command, demonstration=tmp_path, judge=JudgeConfig(type="question"))
    with pytest.raises(UserError, match="demonstration_indices needs demonstration="):
        RefineCommand(**command, demonstration_indices=(1,))
    with pytest.raises(UserError, match="float16"):
        RefineCommand(**command, demonstration=tmp_path, precision="float16")
