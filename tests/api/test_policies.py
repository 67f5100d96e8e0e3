"""Clone and refine in Python: the commands' work, and mistakes in arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

import embodied_rm as erm
from embodied_rm.checkpoint_io import load_tensors
from embodied_rm.data.record import EpisodeRecorder
from embodied_rm.rl.refine_checkpoint import ARCHITECTURE
from embodied_sim.scripted_policy import ScriptedPolicy
from embodied_sim.vec_env import TabletopVecEnv

TINY_TRAINING = {"steps": 2, "batch_size": 4}
TINY_PPO = {"epochs": 1, "num_minibatches": 2}


def make_envs(num_envs: int = 4, **keys: object) -> VectorEnv:
    return TabletopVecEnv(
        "lift_cube",
        num_envs=num_envs,
        views=("front", "wrist"),
        image_size=64,
        autoreset_mode=AutoresetMode.DISABLED,
        **keys,
    )


@pytest.fixture(scope="module")
def demos() -> list[erm.Episode]:
    envs = make_envs(2, ends_on_success=True)
    expert = ScriptedPolicy(envs, seed=0)

    def act(_: np.ndarray, started_rows: np.ndarray) -> np.ndarray:
        expert.reset(started_rows)
        return expert.act()

    recorded = list(EpisodeRecorder(envs, act, num_episodes=2, seed=0))
    envs.close()
    return recorded


def test_clone_then_refine_on_the_learned_reward(demos: list[erm.Episode], tmp_path: Path) -> None:
    policy = erm.clone(demos, steps=20, batch_size=32)
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    envs = erm.LearnedReward(
        make_envs(ends_on_success=False),
        erm.load_reward_model(),
        instruction=lambda env: env.instructions,
        success_source="model",
    )
    refined = erm.refine(
        envs,
        policy,
        eval_envs=make_envs(2),
        eval_episodes=3,
        final_eval_episodes=2,
        folder=tmp_path / "run",
        iterations=2,
        rollout_steps=4,
        critic_warmup_iterations=0,
        ppo=TINY_PPO,
    )
    rows = (tmp_path / "run" / "progress.jsonl").read_text().splitlines()
    assert [json.loads(row)["eval_episodes"] for row in rows] == [3, 3]
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["iterations"] == 2 and metrics["refined_success"]["episodes"] == 2
    assert erm.save_policy(refined, tmp_path / "saved") == tmp_path / "saved"
    with pytest.raises(erm.UserError, match="is not empty"):
        erm.save_policy(refined, tmp_path / "saved")
    for folder in (tmp_path / "saved", tmp_path / "run"):
        loaded = erm.load_policy(folder).state_dict()
        assert all(np.array_equal(loaded[name], tensor) for name, tensor in refined.state_dict().items())
    after = refined.state_dict()
    assert any(not np.array_equal(before[name], after[name]) for name in before), "it learned"
    assert all(np.array_equal(before[name], policy.state_dict()[name]) for name in before), "the given one is unchanged"
    observation = np.zeros((1, refined.spec.obs_dim), np.float32)
    assert refined.act(observation).shape == (1, 4)


def test_recorded_episodes_take_part_in_a_refinement(demos: list[erm.Episode], tmp_path: Path) -> None:
    policy, model = erm.clone(demos, steps=20, batch_size=32), erm.load_reward_model()
    options = {
        "iterations": 2,
        "rollout_steps": 3,
        "critic_warmup_iterations": 1,
        "rlpd": {"batch_size": 8, "pretraining_updates": 2},
    }
    envs = erm.LearnedReward(make_envs(), model, instruction="lift the cube", success_source="model")
    erm.refine(envs, policy, recorded=demos, algorithm="rlpd", folder=tmp_path, **options)
    rows = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [row["updates"] for row in rows] == [2 * 3 * envs.num_envs] * 2 and rows[0]["kl"] == 0 < rows[1]["kl"]
    with pytest.raises(erm.UserError, match="name them, recorded_data= or recorded="):
        erm.refine(envs, policy, algorithm="rlpd", **options)


class UpwardHelper:
    """A person who only moves up, and whom nothing must remember."""

    def reset(self, rows: np.ndarray) -> None:
        assert len(rows)

    def act(self, rows: np.ndarray) -> np.ndarray:
        return np.tile(np.array([0, 0, 0.5, -1], np.float32), (len(rows), 1))

    def has_finished(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros(len(rows), bool)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert not state


def test_a_person_takes_over_in_a_refinement(demos: list[erm.Episode], tmp_path: Path) -> None:
    policy, model = erm.clone(demos, steps=20, batch_size=32), erm.load_reward_model()
    envs = erm.LearnedReward(make_envs(), model, instruction="lift the cube", success_source="model")
    options = {"iterations": 2, "rollout_steps": 6, "critic_warmup_iterations": 1, "recorded": demos}
    options |= {"algorithm": "rlpd", "rlpd": {"batch_size": 8, "pretraining_updates": 2}}
    takeover = {"stall_steps": 1, "min_gain": 0.9, "helper": UpwardHelper()}
    erm.refine(envs, policy, takeover=takeover, folder=tmp_path, **options)
    assert len((tmp_path / "progress.jsonl").read_text().splitlines()) == 2
    stored, _ = load_tensors(tmp_path / "checkpoint", ARCHITECTURE)
    actions = stored["helped.action"]
    assert len(actions) > envs.num_envs and torch.equal(
        actions, torch.tensor([0, 0, 0.5, -1.0]).expand(len(actions), 4)
    )
    with pytest.raises(erm.UserError, match=r"takeover\.stall_steps=1 and a helper belong together"):
        erm.refine(envs, policy, takeover={"stall_steps": 1}, **options)


class OutcomeOnlyEnvs(VectorWrapper):
    """Environments of others: their infos have neither progress nor subtasks."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **keys: Any) -> Any:
        observation, infos = self.env.reset(**keys)
        return observation, {name: infos[name] for name in ("success", "diverged")}

    def step(self, actions: Any) -> Any:
        *values, infos = self.env.step(actions)
        return *values, {name: infos[name] for name in ("success", "diverged")}


def test_the_model_is_taught_by_outcomes_of_its_learner(demos: list[erm.Episode], tmp_path: Path) -> None:
    model = erm.load_reward_model()
    envs = erm.LearnedReward(OutcomeOnlyEnvs(make_envs()), model, instruction="lift the cube", success_source="model")
    erm.refine(
        envs,
        erm.clone(demos, steps=5),
        teach={
            "every": 2,
            "data": demos,
            "steps": 2,
            "batch_size": 4,
            "num_envs": 4,
            "frame_stride": 6,
            "held_out_share": 0.5,
        },
        folder=tmp_path,
        iterations=3,
        rollout_steps=70,
        ppo=TINY_PPO,
    )
    episodes = list(erm.open_dataset(tmp_path / "teach" / "1" / "episodes"))
    assert len(episodes) >= 8 and {episode.success for episode in episodes} <= {True, False}
    assert all(episode.progress is None and not episode.subtasks for episode in episodes)
    assert json.loads((tmp_path / "teach" / "1" / "metrics.json").read_text())["teach"]["round"] == 1


def test_only_a_trained_model_is_taught(demos: list[erm.Episode]) -> None:
    policy, model = erm.clone(demos, steps=1), erm.load_reward_model()
    envs = erm.LearnedReward(make_envs(), model, instruction="lift the cube", success_source="model")
    for teach, config, message in (
        ({}, {}, "needs every="),
        ({"every": 2}, {"algorithm": "rlpd"}, "algorithm=rlpd learns from old ones"),
        ({"evry": 2}, {}, "unknown key of TeachConfig 'evry'"),
    ):
        with pytest.raises(erm.UserError, match=message):
            erm.refine(envs, policy, teach=teach, **config)


def test_the_discounts_of_reward_and_learner_must_agree(demos: list[erm.Episode]) -> None:
    envs = erm.LearnedReward(make_envs(), erm.load_reward_model(), instruction="lift the cube", gamma=0.9)
    with pytest.raises(erm.UserError, match=r"ppo.gamma=0.98, the reward's is gamma=0.9"):
        erm.refine(envs, erm.clone(demos, steps=1))


@pytest.mark.parametrize("columns", [[0, 1], range(2), np.array([0, 1])])
def test_ignored_columns_may_be_any_list_of_numbers(demos: list[erm.Episode], columns: Any, tmp_path: Path) -> None:
    policy = erm.clone(demos, steps=1, ignored_columns=columns)
    erm.save_policy(policy, tmp_path / "policy")
    assert erm.load_policy(tmp_path / "policy").spec.ignored_columns == (0, 1)


@pytest.mark.parametrize("columns", [[True, False], np.array([True, False]), (1.0,), "01", 3])
def test_other_ignored_columns_are_refused(demos: list[erm.Episode], columns: Any) -> None:
    with pytest.raises(erm.UserError, match="ignored_columns must list column numbers"):
        erm.clone(demos, steps=1, ignored_columns=columns)


def test_mistakes_are_user_errors(demos: list[erm.Episode]) -> None:
    with pytest.raises(erm.UserError, match="nothing to clone"):
        erm.clone([])
    with pytest.raises(erm.UserError, match="unknown key of CloneConfig 'step'"):
        erm.clone(demos, step=3)
    with pytest.raises(erm.UserError, match="every demonstration given is imitated"):
        erm.clone(demos, num_demonstrations=1)
    with pytest.raises(erm.UserError, match="envs must be what embodied_rm"):
        erm.refine(make_envs(), erm.clone(demos, steps=1))


def test_a_policy_is_learned_from_good_and_bad_episodes(demos: list[erm.Episode], tmp_path: Path) -> None:
    episodes = [*demos, replace(demos[0], name="failure", success=False)]
    model = erm.load_reward_model()
    policy = erm.learn_offline(episodes, model, folder=tmp_path / "run", steps=20, batch_size=32)
    assert policy.act(demos[0].state).shape == demos[0].action.shape
    assert (tmp_path / "run" / "progress.jsonl").exists()
    by_outcome = erm.learn_offline(episodes, rule="sparse", steps=20, batch_size=32)
    assert not np.allclose(policy.act(demos[0].state), by_outcome.act(demos[0].state))


def test_mistakes_of_offline_learning_are_named(demos: list[erm.Episode]) -> None:
    with pytest.raises(erm.UserError, match=r"rule=shaped needs a reward model .* or rule=sparse"):
        erm.learn_offline(demos)
    with pytest.raises(erm.UserError, match="step"):
        erm.learn_offline(demos, rule="sparse", stepz=3)
    with pytest.raises(erm.DataError, match="there are no episodes"):
        erm.learn_offline([], rule="sparse")


def test_a_cloned_policy_is_improved_in_a_world_model(demos: list[erm.Episode]) -> None:
    policy, model = erm.clone(demos, steps=20), erm.load_reward_model()
    observations = demos[0].state
    before = policy.act(observations)
    improved = erm.dpo(policy, demos, model, world_model_steps=3, steps=10, horizon=2)
    assert np.array_equal(policy.act(observations), before)
    assert improved.act(observations).shape == before.shape and not np.allclose(improved.act(observations), before)
    with pytest.raises(erm.DataError, match="none of the 0 recorded successes has horizon=5 transitions"):
        erm.dpo(policy, [replace(demo, success=False) for demo in demos], model, world_model_steps=1)
    with pytest.raises(erm.DataError, match="its state has size 3, that of the policy"):
        erm.dpo(policy, [replace(demos[0], state=demos[0].state[:, :3])], model, world_model_steps=1)
    with pytest.raises(erm.DataError, match="recorded successes has horizon=1000 transitions"):
        erm.dpo(policy, demos, model, horizon=1000)
    with pytest.raises(erm.DataError, match="there are no episodes"):
        erm.dpo(policy, [], model)
    with pytest.raises(erm.UserError, match="unknown key of DPOConfig 'bete'"):
        erm.dpo(policy, demos, model, bete=1.0)
