"""`embodied-rm collect`: order of failures, recording of policies, repetition of killed recordings."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.rl.learner.policy import load_policy
from embodied_rm.tabletop.collect_episodes import failure_order

KINDS = ("success", "stall", "drop", "wrong_object")


def test_every_other_failure_is_wrong_object_if_the_instruction_names_one() -> None:
    assert failure_order(KINDS, names_object=True) == ("wrong_object", "stall", "wrong_object", "drop")


def test_without_a_named_object_all_failures_are_as_frequent() -> None:
    assert Counter(failure_order(KINDS, names_object=False)) == {"stall": 1, "drop": 1, "wrong_object": 1}


@pytest.fixture(scope="module")
def cloned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy of lift_cube with little exploration."""
    folder = tmp_path_factory.mktemp("cloned")
    env_args = ("num_failures=0", "env.num_envs=2", "env.views=[front]")
    assert main(["collect", "tasks=[lift_cube]", "num_successes=2", f"out={folder / 'demos'}", *env_args]) == 0
    clone_args = ("num_demonstrations=2", "steps=20", "eval_episodes=2", "env.num_envs=2", "log_std_init=-5")
    assert main(["clone", "task=lift_cube", f"data={folder / 'demos'}", f"out={folder / 'clone'}", *clone_args]) == 0
    return folder / "clone"


def test_policies_are_recorded_at_their_task(cloned: Path, tmp_path: Path) -> None:
    args = (
        "tasks=[lift_cube,open_drawer]",
        "num_successes=0",
        "num_failures=1",
        f"policies=[{cloned}]",
        "rollouts_per_policy=3",
    )
    assert main(["collect", *args, "env.num_envs=2", "env.views=[front]", f"out={tmp_path / 'run'}"]) == 0
    data = open_dataset(tmp_path / "run" / "dataset")
    outcome_counts = Counter((about.metadata["task"], about.metadata["outcome"] == "rollout") for about in data.meta)
    assert outcome_counts == {("lift_cube", False): 1, ("lift_cube", True): 3, ("open_drawer", False): 1}
    policy = load_policy(cloned / "policy")
    for row in np.flatnonzero([about.metadata["outcome"] == "rollout" for about in data.meta]):
        episode = data.episode(int(row))
        assert episode.state is not None and episode.action is not None
        expected_action = np.clip(policy.act(episode.state[:-1]), -1, 1)
        assert np.abs(episode.action[:-1] - expected_action).max() < 6 * np.exp(-5)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("policies=[{cloned}]", "must be set together"),
        ("rollouts_per_policy=3", "must be set together"),
        ("policies=[{cloned}] rollouts_per_policy=0", "rollouts_per_policy must be >= 1, got 0"),
        (
            "policies=[{cloned}/policy] rollouts_per_policy=3",
            "is no run folder of embodied-rm clone, offline or refine",
        ),
        (
            "policies=[{cloned}] rollouts_per_policy=3 tasks=[press_button]",
            "is for lift_cube, which is none of press_button",
        ),
    ],
)
def test_policies_are_validated_before_recording(
    args: str, message: str, cloned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args_list = args.format(cloned=cloned).split(" ")
    assert main(["collect", "tasks=[lift_cube]", *args_list, f"out={tmp_path / 'run'}"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_recording_killed_at_the_last_timestep_is_repeated(tmp_path: Path) -> None:
    args_list = [
        "collect",
        "tasks=[lift_cube]",
        "num_successes=1",
        "num_failures=0",
        "env.num_envs=1",
        "env.views=[front]",
    ]
    assert main([*args_list, f"out={tmp_path / 'run'}"]) == 0
    first_episode = open_dataset(tmp_path / "run" / "dataset").episode(0)
    (tmp_path / "run" / "metrics.json").unlink()
    (tmp_path / "run" / "dataset" / "meta" / "info.json").unlink()
    (tmp_path / "run" / ".dataset.partial-1234").mkdir()
    assert main([*args_list, f"out={tmp_path / 'run'}", "resume=true"]) == 0
    second_episode = open_dataset(tmp_path / "run" / "dataset").episode(0)
    assert all(np.array_equal(second_episode.views[name], frames) for name, frames in first_episode.views.items())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "dataset", "metrics.json"]
