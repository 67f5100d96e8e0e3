"""`embodied-rm prefer` and `embodied-rm offline`: from recorded episodes to a policy, without an environment step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_runs import TINY, metrics

from embodied_rm.cli.main import main
from embodied_rm.labels.comparisons import read_comparisons
from embodied_rm.paths import POLICY_DIR
from embodied_rm.rl.learner.policy import load_policy

OFFLINE = ["offline", "task=lift_cube", "steps=40", "eval_episodes=4", *TINY]


def test_comparisons_teach_a_model_whose_progress_teaches_a_policy(demos: Path, tmp_path: Path) -> None:
    pairs, model, policy = (tmp_path / name for name in ("pairs", "model", "policy"))
    assert main(["prefer", f"data={demos}", "num_pairs=30", f"out={pairs}"]) == 0
    assert len(read_comparisons(pairs)) == metrics(pairs)["prefer"]["pairs"] == 30
    train = ["train", f"data={demos}", "label_schemes=[compared]", "fusion=forward", f"comparisons={pairs}"]
    assert main([*train, "steps=2", "batch_size=4", "image_size=[32,32]", f"out={model}"]) == 0
    args = [
        f"data={demos}",
        "rule=raw",
        "success_reward=0",
        "rank_progress=true",
        f"checkpoint={model}",
        f"out={policy}",
    ]
    assert main([*OFFLINE, *args]) == 0
    assert metrics(policy)["offline_success"]["episodes"] == 4
    rows = [json.loads(line) for line in (policy / "progress.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 40
    spec = load_policy(policy / POLICY_DIR).spec
    assert spec.obs_mode == "state" and spec.length_dims == spec.obs_dim


@pytest.mark.parametrize("args", [["rule=sparse", "method=cql"], ["rule=dense"]])
def test_rules_of_recorded_outcome_and_progress_need_no_model(demos: Path, tmp_path: Path, args: list[str]) -> None:
    assert main([*OFFLINE, f"data={demos}", *args, "checkpoint=/", f"out={tmp_path / 'run'}"]) == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rule=self_reference"], "needs whole rollouts of the present policy"),
        (["method=sac"], "unknown value of method 'sac'. Available: cql, famo2o, iql"),
        (["task=turn_lever"], "turn_lever"),
    ],
)
def test_what_recorded_episodes_do_not_permit_is_refused(
    demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert main([*OFFLINE, f"data={demos}", *args, f"out={tmp_path / 'run'}"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["clip_share=0"], "clip_share must be in (0, 1], got 0"),
        (["flip_rate=2"], "flip_rate must be in [0, 1], got 2"),
        (["factors=[success]"], "the factor success compares whole episodes: set clip_share=1"),
        (["factors=[]"], "factors=[] compares nothing"),
        (["factors=[progress,force]"], "factors must be among success, progress, duration, effort, got 'force'"),
        (["judge=vlac", "judge.folder=x"], "judge=vlac cannot compare clips"),
        (["judge=question", "judge.folder=x", "flip_rate=0.1"], "changes answers by recorded factors"),
        (["judge=question", "judge.folder=x", "judge.question=rubric"], "judge.question= is of questions about one"),
        (["judge=question", "judge.folder=x", "judge.readings=3"], "judge.readings= is of questions about one episode"),
        (["person=true", "flip_rate=0.1"], "changes answers by recorded factors: leave person= out"),
        (["person=true", "judge=question", "judge.folder=x"], "person=true and judge=question both answer"),
        (["person=true", "factors=[effort]"], "factors=[effort] compare without person=: leave one of them out"),
        (["port=8000"], "port=8000 is that of the page of person=true"),
        (["person=true", "port=99999"], "port 99999 of 127.0.0.1 cannot be used"),
    ],
)
def test_settings_of_comparisons_that_make_no_sense_are_refused(
    demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert main(["prefer", f"data={demos}", *args, f"out={tmp_path / 'run'}"]) == 2
    assert message in capsys.readouterr().err


CLONE = ["clone", "task=lift_cube", "num_demonstrations=3", *OFFLINE[2:]]


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize("command", [[*OFFLINE, "rule=sparse", "method=cql"], CLONE])
def test_episodes_without_actions_are_learned_from(demos: Path, tmp_path: Path, command: list[str]) -> None:
    counts = []
    for name, more in (("alone", []), ("both", [f"action_free_data={demos}"])):
        assert main([*command, f"data={demos}", *more, f"out={tmp_path / name}"]) == 0
        counts.append(metrics(tmp_path / name)[command[0]]["transitions"])
    assert counts[1] == 2 * counts[0]
