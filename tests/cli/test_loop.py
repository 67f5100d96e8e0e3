"""The commands as a chain, at the smallest sizes: what one leaves is what the next one takes."""

import json
from pathlib import Path

import numpy as np
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.catalog import open_data
from embodied_rm.rl.policy import load_policy

TINY = ("world.num_envs=4", "world.image_size=32")


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop") / "demos"
    assert main(["collect", "tasks=[lift_cube,open_drawer]", "successes=4", "failures=5", f"out={folder}", *TINY]) == 0
    return folder


@pytest.fixture(scope="module")
def cloned(demos: Path) -> Path:
    folder = demos.parent / "cloned"
    words = ["clone", "task=lift_cube", f"data={demos}", "demonstrations=3", "steps=20", "episodes=4", f"out={folder}"]
    assert main([*words, *TINY]) == 0
    return folder


def test_collect_records_what_was_asked_for(demos: Path) -> None:
    data = open_data(demos / "dataset")
    assert len(data) == 2 * (4 + 5) == metrics(demos)["collect"]["episodes"]
    kinds = [meta.text["outcome"] for meta in data.meta if meta.text["task"] == "lift_cube"]
    assert kinds.count("success") == 4 and len(set(kinds)) == 6
    assert all(meta.success for meta in data.meta if meta.text["outcome"] == "success")
    assert not any(meta.success for meta in data.meta if meta.text["outcome"] != "success")
    episode = data.episode(0)
    assert set(episode.views) == {"front", "wrist"} and episode.views["front"].shape[1:] == (32, 32, 3)
    assert episode.progress is not None and episode.progress[-1] == pytest.approx(1.0)
    assert episode.action is not None and np.abs(episode.action).max() <= 1
    assert sum(meta.length for meta in data.meta) == metrics(demos)["collect"]["frames"]


def test_the_same_seed_records_the_same_episodes(demos: Path, tmp_path: Path) -> None:
    words = ["collect", "tasks=[lift_cube,open_drawer]", "successes=4", "failures=5", f"out={tmp_path / 'again'}"]
    assert main([*words, *TINY]) == 0
    first, second = open_data(demos / "dataset").episode(3), open_data(tmp_path / "again" / "dataset").episode(3)
    np.testing.assert_array_equal(first.state, second.state)
    np.testing.assert_array_equal(first.views["front"], second.views["front"])


def test_clone_leaves_a_policy_and_the_simulators_verdict(cloned: Path) -> None:
    assert load_policy(cloned / "policy").spec.action_dim == 4
    verdict = metrics(cloned)["cloned_success"]
    assert verdict["episodes"] == 4 and 0 <= verdict["interval"][0] <= verdict["rate"] <= verdict["interval"][1] <= 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["clone", "task=lift_cub", "data={demos}"], "unknown task 'lift_cub'. Did you mean 'lift_cube'?"),
        (["clone", "task=cube_in_drawer", "data={demos}"], "unknown recorded task 'cube_in_drawer'"),
        (["clone", "task=lift_cube", "data={demos}/nowhere"], "nowhere does not exist"),
        (["clone", "task=lift_cube", "data={demos}", "demonstrations=9"], "9 demonstrations asked for"),
        (["clone", "task=lift_cube", "data={demos}", "steps=0"], "steps must be >= 1, got 0"),
        (
            ["clone", "task=lift_cube", "data={demos}", "world.views=[fron]"],
            "unknown view 'fron'. Did you mean 'front'?",
        ),
        (["clone", "task=lift_cube", "data={demos}", "world.backend=gpu"], "unknown backend 'gpu'"),
        (
            ["clone", "task=lift_cube", "data={demos}", "world=gpu"],
            "unknown world 'gpu'. Did you mean 'cpu'? Available: cpu",
        ),
        (["clone", "data={demos}"], "task is required: embodied-rm clone task=..."),
        (["collect", "tasks=[lift]"], "unknown task 'lift'. Did you mean 'lift_cube'?"),
        (["collect", "tasks=lift_cube"], "tasks must be a list like [a,b] (each a text), got lift_cube"),
        (["collect", "pace=[0.5]"], "pace must be two shares [slowest,fastest] in (0, 1], got [0.5]"),
        (["collect", "successes=0", "failures=0"], "nothing to record"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    words: list[str], sentence: str, demos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*(word.format(demos=demos) for word in words), f"out={out}"]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not out.exists()
