"""The commands as a pipeline: collect, clone and refine, where outputs of one are inputs of the next."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_runs import NUM_EPISODES, NUM_SUCCESSES, RECORD, REFINE, TINY, metrics

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import DataError
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import resolve_reward_model
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.run_folder import NullReporter
from embodied_rm.tabletop import recorded_transitions
from embodied_sim.mirror_image import mirrored_columns
from embodied_sim.observation import horizontal_position_columns
from embodied_sim.registry import make_task


def test_collect_records_the_configured_episodes(demos: Path) -> None:
    data = open_dataset(demos / "dataset")
    assert len(data) == NUM_EPISODES == metrics(demos)["collect"]["episodes"]
    outcomes = [meta.metadata["outcome"] for meta in data.meta if meta.metadata["task"] == "lift_cube"]
    assert outcomes.count("success") == NUM_SUCCESSES and set(outcomes) <= {
        "success",
        *make_task("lift_cube").failure_plans(),
    }
    assert all(meta.success for meta in data.meta if meta.metadata["outcome"] == "success")
    assert not any(meta.success for meta in data.meta if meta.metadata["outcome"] != "success")
    episode = data.episode(0)
    assert set(episode.views) == {"front", "wrist"} and episode.views["front"].shape[1:] == (32, 32, 3)
    assert episode.progress is not None and episode.progress[-1] == pytest.approx(1.0)
    assert episode.action is not None and np.abs(episode.action).max() <= 1
    assert sum(meta.length for meta in data.meta) == metrics(demos)["collect"]["frames"]


def test_the_same_seed_records_the_same_episodes(demos: Path, tmp_path: Path) -> None:
    assert main([*RECORD, f"out={tmp_path / 'again'}"]) == 0
    first, second = open_dataset(demos / "dataset").episode(3), open_dataset(tmp_path / "again" / "dataset").episode(3)
    np.testing.assert_array_equal(first.state, second.state)
    np.testing.assert_array_equal(first.views["front"], second.views["front"])


def test_clone_writes_a_policy_and_its_evaluation(cloned: Path) -> None:
    assert load_policy(cloned / "policy").spec.action_dim == 4
    eval_result = metrics(cloned)["cloned_success"]
    assert (
        eval_result["episodes"] == 4
        and 0 <= eval_result["interval"][0] <= eval_result["rate"] <= eval_result["interval"][1] <= 1
    )


def test_refine_reports_success_before_and_after(refined: Path) -> None:
    numbers = metrics(refined)["tasks"]["lift_cube"]
    assert numbers["iterations"] == 2 and numbers["episodes"] == 4 and numbers["env_steps"] == 2 * 4 * 4
    assert load_policy(refined / "policy").spec.action_dim == 4
    assert len((refined / "progress.jsonl").read_text().splitlines()) == 2
    assert '"refined"' in (refined / "report.html").read_text()


def test_clone_and_refine_agree_on_the_cloned_policy(cloned: Path, refined: Path) -> None:
    """Both evaluate the same policy on the same episodes."""
    assert metrics(refined)["tasks"]["lift_cube"]["cloned_success"] == metrics(cloned)["cloned_success"]["rate"]


def test_a_demonstration_pays_for_a_refinement(
    cloned: Path, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reward model is an episode, over the pretrained encoder; nothing is trained but the policy."""
    arguments = [*REFINE, f"policy={cloned}", f"demonstration={demos}", "env.views=[front]", "eval_episodes=0"]
    assert main([*arguments, f"out={tmp_path / 'refined'}"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "refined/progress.jsonl").read_text().splitlines()]
    assert all(row["num_scores"] == 4 * 4 and row["invalid_rate"] == 0 and row["uncertainty"] > 0 for row in rows)
    assert main([*arguments, "demonstration_indices=[99]", f"out={tmp_path / 'absent'}"]) == 2
    assert "episode 99 is not among" in " ".join(capsys.readouterr().err.split())
    assert main([*arguments, "env.views=[side]", f"out={tmp_path / 'side'}"]) == 2
    assert "unknown view of the reward model" in " ".join(capsys.readouterr().err.split())


@pytest.mark.usefixtures("few_steps")
def test_recorded_episodes_take_part_in_a_refinement(
    demos: Path, cloned: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [*REFINE, f"policy={cloned}", f"checkpoint={reward_model}", "algorithm=rlpd", "rlpd.batch_size=16"]
    common.append("rlpd.pretraining_updates=2")
    recorded = [*common, f"recorded_data={demos}"]
    assert main([*recorded, f"out={tmp_path / 'refined'}"]) == 0
    numbers = metrics(tmp_path / "refined")["tasks"]["lift_cube"]
    assert numbers["iterations"] == 2 and numbers["cloned_success"] == metrics(cloned)["cloned_success"]["rate"]
    row = json.loads((tmp_path / "refined" / "progress.jsonl").read_text().splitlines()[-1])
    assert row["updates"] == 2 * 4 * 4 and row["kl"] > 0
    assert "of each batch" in capsys.readouterr().out
    assert main([*recorded, "algorithm=hnpg", "hnpg.updates=2", f"out={tmp_path / 'hybrid'}"]) == 0
    assert metrics(tmp_path / "hybrid")["tasks"]["lift_cube"]["iterations"] == 2
    assert "transitions, weight 1 in the critic" in capsys.readouterr().out
    for words, message in (
        ([*common], "algorithm=hnpg or rlpd and recorded_data= belong together"),
        ([*recorded, "algorithm=ppo"], "algorithm=hnpg or rlpd and recorded_data= belong together"),
        ([*recorded, "algorithm=hnpg", "reward.rule=sparse"], "set reward.rule=shaped or reward.success_source=simul"),
        ([*recorded, "reward.rule=redistributed"], "needs whole rollouts"),
        ([*recorded, "reward.uncertainty_penalty=1"], "rewarded without reward.uncertainty_penalty"),
        ([*recorded, "task=push_to_zone"], "push_to_zone"),
    ):
        assert main([*words, f"out={tmp_path / 'refused'}"]) == 2
        assert message in capsys.readouterr().err


def test_recorded_episodes_of_another_rate_are_refused(demos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_transitions, "CONTROL_HZ", 10.0)
    with pytest.raises(DataError, match="has 20 frames/s, the environments act 10 times per second"):
        recorded_transitions.read_transitions(
            demos,
            "lift_cube",
            RewardConfig(rule="sparse", success_source="simulator"),
            load_progress_net(resolve_reward_model(None)),
            0.98,
            NullReporter(),
        )


def test_imitation_uses_the_demonstrations_of_the_clone_run(
    cloned: Path, refined: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [*REFINE, f"checkpoint={reward_model}", "imitation_coef=0.5"]
    assert main([*common, f"policy={cloned}", f"out={tmp_path / 'held'}"]) == 0
    plain, imitated = (load_policy(folder / "policy").state_dict() for folder in (refined, tmp_path / "held"))
    assert any(not torch.equal(plain[name], imitated[name]) for name in plain)
    assert main([*common, f"policy={refined}", f"out={tmp_path / 'other'}"]) == 2
    assert "imitation_coef needs the demonstrations" in " ".join(capsys.readouterr().err.split())


def test_a_translation_invariant_policy_sees_no_position_in_the_robot_frame(
    demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=1", "steps=5", "eval_episodes=4", *TINY]
    assert main([*args, "translation_invariant=true", f"out={tmp_path / 'cloned'}"]) == 0
    policy = load_policy(tmp_path / "cloned/policy")
    observation = np.random.default_rng(0).normal(size=(5, policy.spec.obs_dim)).astype(np.float32)
    moved = observation.copy()
    moved[:, list(horizontal_position_columns(make_task("lift_cube")))] += 0.1
    assert np.array_equal(policy.act(observation), policy.act(moved))
    assert main([*args, "translation_invariant=true", "obs_mode=proprio+embeddings", f"out={tmp_path / 'b'}"]) == 2
    assert "translation_invariant=true needs obs_mode=state" in " ".join(capsys.readouterr().err.split())


def test_the_mirror_image_of_a_demonstration_is_imitated_too(
    demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=1", "steps=5", "eval_episodes=4", *TINY]
    transitions = {}
    for value in ("false", "true"):
        assert main([*args, f"mirror_images={value}", f"out={tmp_path / value}"]) == 0
        transitions[value] = json.loads((tmp_path / value / "metrics.json").read_text())["clone"]["transitions"]
    assert transitions["true"] == 2 * transitions["false"]
    assert load_policy(tmp_path / "true/policy").spec.mirrored_columns == mirrored_columns("lift_cube")
    assert main([*args, "mirror_images=true", "obs_mode=proprio+embeddings", f"out={tmp_path / 'b'}"]) == 2
    assert "mirror_images=true needs obs_mode=state" in " ".join(capsys.readouterr().err.split())


def test_a_policy_of_embeddings_needs_its_own_encoder_and_views(
    demos: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=1", "steps=5", "eval_episodes=4", *TINY]
    embedding_args = [*args, "obs_mode=proprio+embeddings", f"checkpoint={reward_model}", "env.views=[wrist]"]
    assert main([*embedding_args, f"out={tmp_path / 'cloned'}"]) == 0
    common = [*REFINE, f"policy={tmp_path / 'cloned'}", "env.views=[wrist]"]
    assert main([*common, f"checkpoint={reward_model}", f"out={tmp_path / 'refined'}"]) == 0
    assert main([*common, f"out={tmp_path / 'other'}"]) == 2
    assert "was cloned with another reward model" in " ".join(capsys.readouterr().err.split())
    other_views_args = [word.replace("env.views=[wrist]", "env.views=[front]") for word in common]
    assert main([*other_views_args, f"checkpoint={reward_model}", f"out={tmp_path / 'encoder'}"]) == 2
    assert "cloned from the views wrist, not front: set env.views=[wrist]" in " ".join(capsys.readouterr().err.split())
    assert main([*args, "obs_mode=proprio+embeddings", "env.views=[side]", f"out={tmp_path / 'third'}"]) == 2
    assert "unknown recorded view" in " ".join(capsys.readouterr().err.split())
