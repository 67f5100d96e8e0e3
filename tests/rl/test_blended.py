"""BARFI's own test: an auxiliary reward that misleads is weighed to 0, and the task is learned as without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rl_envs import ImageModel, PointReachEnv
from test_refine import CONFIG, evaluate, weak_policy

from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.refine import RefineResult, refine
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE, CHECKPOINT_DIR
from embodied_rm.run_folder import NullReporter, RunFolder


class MisleadingModel(ImageModel):
    """Has the more progress, the further away the goal is."""

    def step(self, state, views):
        output, state = super().step(state, views)
        return replace(output, progress=1 - output.progress), state


def run(folder: Path, model: ImageModel, rule: str) -> tuple[RefineResult, float]:
    """Refine a policy that succeeds in a third of the episodes; return the result and the last auxiliary weight."""
    reward = RewardConfig(rule=rule, success_source="simulator")
    config = replace(CONFIG, iterations=25, reward=reward)
    folder.mkdir()
    run_folder = RunFolder.open(folder, resume=False)
    result = refine(PointReachEnv(64), weak_policy(), model, config, run_folder, NullReporter(), evaluate)
    tensors, _ = load_tensors(folder / CHECKPOINT_DIR, ARCHITECTURE)
    return result, float(tensors["rollout_rewards.auxiliary_weight"])


@pytest.fixture(scope="module")
def misled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[RefineResult, float]]:
    folder = tmp_path_factory.mktemp("misled")
    return {rule: run(folder / rule, MisleadingModel(), rule) for rule in ("blended", "raw", "sparse")}


def test_a_misleading_reward_is_weighed_to_zero(misled: dict[str, tuple[RefineResult, float]]) -> None:
    assert misled["blended"][1] == 0
    rates = {rule: result.refined_eval.rate for rule, (result, _) in misled.items() if result.refined_eval is not None}
    assert rates["blended"] >= rates["sparse"] - 0.05 > 0.9
    assert rates["raw"] < 0.1, "the same reward ruins a policy that is paid by it"


def test_a_helpful_reward_keeps_its_weight(tmp_path: Path, misled: dict[str, tuple[RefineResult, float]]) -> None:
    result, weight = run(tmp_path / "helped", ImageModel(), "blended")
    assert weight > 0.5
    early = [sum(row["success"] or 0 for row in r.log_rows[:10]) for r in (result, misled["sparse"][0])]
    assert early[0] > early[1], "it is learned earlier with the auxiliary reward"
