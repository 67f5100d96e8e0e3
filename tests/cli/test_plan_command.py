"""`embodied-rm plan`: subgoals that a dataset has, and how well a reward model judges them."""

import json
from pathlib import Path

import pytest

from embodied_rm.api.sources import open_dataset
from embodied_rm.cli.main import main
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.models.judges.planner import SYSTEM_PROMPT, make_question


def goals_of(folder: Path) -> list[str]:
    data = open_dataset(folder)
    return sorted({goal_of(data.episode(index)) for index in range(len(data))})


def test_a_plan_is_checked_against_data_and_model(unseen: Path, reward_model: Path, tmp_path: Path) -> None:
    goals = goals_of(unseen)[:2]
    listed = ",".join(f'"{goal.upper()}"' for goal in goals)
    command = ["plan", "instruction=tidy up", f"data={unseen}", f"checkpoint={reward_model}", f"subgoals=[{listed}]"]
    assert main([*command, f"out={tmp_path}/plan"]) == 0
    metrics = json.loads((tmp_path / "plan" / "metrics.json").read_text())["plan"]
    assert metrics["instruction"] == "; then ".join(goals) and list(metrics["success_auc"]) == goals
    assert all(auc is None or 0 <= auc <= 1 for auc in metrics["success_auc"].values())


def test_a_stored_conversation_plans_again(unseen: Path, reward_model: Path, tmp_path: Path) -> None:

    goals = goals_of(unseen)
    entry = {"system": SYSTEM_PROMPT, "question": make_question("tidy up", goals), "answer": goals[-1], "by": "a model"}
    (tmp_path / "transcript.jsonl").write_text(json.dumps(entry) + "\n")
    command = ["plan", "instruction=tidy up", f"data={unseen}", f"checkpoint={reward_model}"]
    assert main([*command, f"transcript={tmp_path}/transcript.jsonl", f"out={tmp_path}/plan"]) == 0
    assert json.loads((tmp_path / "plan" / "metrics.json").read_text())["plan"]["instruction"] == goals[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["subgoals=[fly]"], "instruction= says what the robot is to do"),
        (["instruction=go", "subgoals=[fly]"], "unknown instruction 'fly'"),
        (["instruction=go", "subgoals=[fly]", "transcript=a.jsonl"], "subgoals= is a plan already"),
        (["instruction=go"], "has no answer to a question that starts with"),
    ],
)
def test_mistakes_are_named(
    arguments: list[str], message: str, unseen: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    command = ["plan", f"data={unseen}", f"checkpoint={reward_model}", f"out={tmp_path}/plan", *arguments]
    assert main(command) == 2
    assert message in " ".join(capsys.readouterr().err.split())
