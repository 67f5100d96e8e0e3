"""The commands as a chain, at the smallest sizes: what one leaves is what the next one takes."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from embodied_rm.cli.main import main
from embodied_rm.data.catalog import open_data
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.rl.policy import load_policy
from sim.registry import make_task

TINY = ("world.num_envs=4", "world.image_size=32")


def fill(word: str, **folders: Path) -> str:
    """The word with `{name}` replaced by a folder; other braces stay."""
    for name, folder in folders.items():
        word = word.replace(f"{{{name}}}", str(folder))
    return word


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


@pytest.fixture(scope="module")
def reward_model(demos: Path) -> Path:
    folder = demos.parent / "reward_model"
    words = ["train", f"data={demos}", "updates=3", "batch=2", "image_size=[32,32]", f"out={folder}"]
    assert main(words) == 0
    return folder


@pytest.fixture(scope="module")
def refined(cloned: Path, reward_model: Path) -> Path:
    folder = cloned.parent / "refined"
    sizes = ["iterations=2", "warmup_iterations=1", "rollout_steps=4", "episodes=4"]
    places = [f"policy={cloned}", f"checkpoint={reward_model}", f"out={folder}"]
    assert main(["refine", "task=lift_cube", *sizes, *places, *TINY]) == 0
    return folder


def test_collect_records_what_was_asked_for(demos: Path) -> None:
    data = open_data(demos / "dataset")
    assert len(data) == 2 * (4 + 5) == metrics(demos)["collect"]["episodes"]
    kinds = [meta.text["outcome"] for meta in data.meta if meta.text["task"] == "lift_cube"]
    assert kinds.count("success") == 4 and set(kinds) <= {"success", *make_task("lift_cube").failures()}
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


def test_refine_reports_success_before_and_after(refined: Path) -> None:
    numbers = metrics(refined)["tasks"]["lift_cube"]
    assert numbers["iterations"] == 2 and numbers["episodes"] == 4 and numbers["env_steps"] == 2 * 4 * 4
    assert load_policy(refined / "policy").spec.action_dim == 4
    assert len((refined / "progress.jsonl").read_text().splitlines()) == 2
    assert '"refined"' in (refined / "report.html").read_text()


def test_a_refined_policy_was_cloned_first(cloned: Path, refined: Path) -> None:
    """The same judge with the same seed: cloning and refinement must agree on the policy they share."""
    assert metrics(refined)["tasks"]["lift_cube"]["cloned_success"] == metrics(cloned)["cloned_success"]["rate"]


def test_score_and_evaluate_say_the_same_of_a_frame(demos: Path, reward_model: Path, tmp_path: Path) -> None:
    common = [f"data={demos}", f"checkpoint={reward_model}"]
    assert main(["score", *common, "episodes=[3,1]", "videos=false", f"out={tmp_path / 'score'}"]) == 0
    table = pq.read_table(tmp_path / "score" / "progress.parquet").to_pydict()
    lengths = [meta.length for meta in open_data(demos / "dataset").meta]
    assert len(table["index"]) == lengths[1] + lengths[3]
    assert not list((tmp_path / "score").glob("*.mp4"))
    assert main(["evaluate", *common, "shown=18", "name=mine", f"out={tmp_path / 'evaluate'}"]) == 0
    assert {"mine", "baselines", "episodes"} == set(metrics(tmp_path / "evaluate"))
    shown = re.search(r'id="data">(.*?)</script>', (tmp_path / "evaluate" / "report.html").read_text())
    assert shown is not None
    panel = json.loads(shown[1])["panels"][1]
    np.testing.assert_allclose(panel["progress"], table["progress_sparse"][: lengths[1]], atol=1e-3)


def test_an_exported_model_judges_as_its_checkpoint_does(
    demos: Path, cloned: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = tmp_path / "exported"
    assert main(["export", f"checkpoint={reward_model}", f"out={exported}"]) == 0
    assert max(metrics(exported)["export"].values()) <= 1e-4
    for name, model in (("torch", reward_model), ("onnx", exported)):
        assert main(["evaluate", f"data={demos}", f"checkpoint={model}", f"out={tmp_path / name}"]) == 0
    ours, theirs = (metrics(tmp_path / name)["reward_model"] for name in ("torch", "onnx"))
    assert ours == pytest.approx(theirs, abs=1e-2)
    sizes = ["iterations=2", "warmup_iterations=1", "rollout_steps=4", "episodes=2"]
    places = [f"policy={cloned}", f"checkpoint={exported}", f"out={tmp_path / 'refined'}"]
    assert main(["refine", "task=lift_cube", *sizes, *places, *TINY]) == 0
    for words in (["adapt", f"data={demos}", f"start={exported}"], ["export", f"checkpoint={exported}"]):
        assert main([*words, f"out={tmp_path / 'no'}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot learn any more" in said and "is exported already" in said


def test_an_interrupt_is_one_line_and_the_run_can_go_on(demos: Path, tmp_path: Path) -> None:
    words = [
        "train",
        f"data={demos}",
        "batch=2",
        "image_size=[32,32]",
        "checkpoint_seconds=0.01",
        f"out={tmp_path / 'r'}",
    ]
    # Whoever runs the tests in the background has interrupts ignored, and children inherit that.
    listen = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{listen}; import sys; from embodied_rm.cli.main import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", script, *words], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "r" / "unfinished" / "manifest.json").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, "interrupted; go on with the same line and resume=true\n")
    assert main([*words, "updates=5"]) == 2, "it must not be written over"
    assert main([*words, "updates=5", "resume=true"]) == 2, "nor be continued as another run"
    assert not (tmp_path / "r" / "metrics.json").exists()


def test_adapt_starts_from_a_model_that_was_trained(demos: Path, reward_model: Path, tmp_path: Path) -> None:
    words = ["adapt", f"data={demos}", "episode=2", f"start={reward_model}", "max_seconds=null", "updates=2", "batch=2"]
    assert main([*words, f"out={tmp_path / 'adapted'}"]) == 0
    before, after = (load_progress_net(folder / "checkpoint") for folder in (reward_model, tmp_path / "adapted"))
    assert before.config == after.config
    assert metrics(tmp_path / "adapted")["adapt"]["steps"] > 0


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
        (["train", "data={demos}/nowhere"], "nowhere does not exist"),
        (["train", "data={demos}", "held_out={demos}"], "held out, but the same episode is trained on"),
        (["train", "data={demos}", "fusion=men"], "unknown value of fusion 'men'. Did you mean 'mean'?"),
        (["train", "data={demos}", "model=clap"], "unknown model 'clap'. Did you mean 'clip'?"),
        (["adapt", "data={demos}", "episode=99"], "there is no episode 99"),
        (["adapt", "data={demos}", "instruction=x"], "a LeRobot dataset has its own instructions"),
        (["score", "data={demos}", "checkpoint={demos}"], "no checkpoint found in"),
        (["score", "data={demos}", "checkpoint={reward_model}", "episodes=[99]"], "there is no episode 99"),
        (["evaluate", "data={demos}", "checkpoint={reward_model}", "name=baselines"], "name must differ"),
        (["refine", "task=lift_cube", "policy={reward_model}", "checkpoint={reward_model}"], "no policy found in"),
        (["demo", "tasks=[lift]"], "unknown task of the demo 'lift'. Did you mean 'lift_cube'?"),
        (["demo", "collect.tasks=[open_drawer]"], "the reward model would not know lift_cube"),
        (["demo", "train={max_secondz:3}"], "'train.max_secondz'. Did you mean 'train.max_seconds'?"),
        (["collect", "tasks=[lift]"], "unknown task 'lift'. Did you mean 'lift_cube'?"),
        (["collect", "tasks=lift_cube"], "tasks must be a list like [a,b] (each a text), got lift_cube"),
        (["collect", "pace=[0.5]"], "pace must be two shares [slowest,fastest] in (0, 1], got [0.5]"),
        (["collect", "successes=0", "failures=0"], "nothing to record"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    words: list[str], sentence: str, demos: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*(fill(word, demos=demos, reward_model=reward_model) for word in words), f"out={out}"]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not out.exists()
