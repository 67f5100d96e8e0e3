"""The commands as a pipeline, at the smallest sizes: outputs of one are inputs of the next."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.rl.learner.policy import load_policy
from embodied_sim.registry import make_task

TINY = ("env.num_envs=4", "env.image_size=32")


def fill(word: str, **folders: Path) -> str:
    """Replace `{name}` by a folder; other braces stay."""
    for name, folder in folders.items():
        word = word.replace(f"{{{name}}}", str(folder))
    return word


def metrics(folder: Path) -> dict:
    return json.loads((folder / "metrics.json").read_text())


@pytest.fixture(scope="module")
def demos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop") / "demos"
    assert (
        main(["collect", "tasks=[lift_cube,open_drawer]", "num_successes=4", "num_failures=5", f"out={folder}", *TINY])
        == 0
    )
    return folder


@pytest.fixture(scope="module")
def unseen(demos: Path) -> Path:
    folder = demos.parent / "unseen"
    args = [
        "collect",
        "tasks=[lift_cube,open_drawer]",
        "num_successes=4",
        "num_failures=5",
        "seed=1",
        f"out={folder}",
        *TINY,
    ]
    assert main(args) == 0
    return folder


@pytest.fixture(scope="module")
def cloned(demos: Path) -> Path:
    folder = demos.parent / "cloned"
    args = [
        "clone",
        "task=lift_cube",
        f"data={demos}",
        "num_demonstrations=3",
        "steps=20",
        "eval_episodes=4",
        f"out={folder}",
    ]
    assert main([*args, *TINY]) == 0
    return folder


@pytest.fixture(scope="module")
def reward_model(demos: Path) -> Path:
    folder = demos.parent / "reward_model"
    args = ["train", f"data={demos}", "steps=3", "batch_size=2", "image_size=[32,32]", f"out={folder}"]
    assert main(args) == 0
    return folder


@pytest.fixture(scope="module")
def refined(cloned: Path, reward_model: Path) -> Path:
    folder = cloned.parent / "refined"
    size_args = ["iterations=2", "critic_warmup_iterations=1", "rollout_steps=4", "final_eval_episodes=4"]
    places = [f"policy={cloned}", f"checkpoint={reward_model}", f"out={folder}"]
    assert main(["refine", "task=lift_cube", *size_args, *places, *TINY]) == 0
    return folder


def test_collect_records_the_configured_episodes(demos: Path) -> None:
    data = open_dataset(demos / "dataset")
    assert len(data) == 2 * (4 + 5) == metrics(demos)["collect"]["episodes"]
    outcomes = [meta.metadata["outcome"] for meta in data.meta if meta.metadata["task"] == "lift_cube"]
    assert outcomes.count("success") == 4 and set(outcomes) <= {"success", *make_task("lift_cube").failure_plans()}
    assert all(meta.success for meta in data.meta if meta.metadata["outcome"] == "success")
    assert not any(meta.success for meta in data.meta if meta.metadata["outcome"] != "success")
    episode = data.episode(0)
    assert set(episode.views) == {"front", "wrist"} and episode.views["front"].shape[1:] == (32, 32, 3)
    assert episode.progress is not None and episode.progress[-1] == pytest.approx(1.0)
    assert episode.action is not None and np.abs(episode.action).max() <= 1
    assert sum(meta.length for meta in data.meta) == metrics(demos)["collect"]["frames"]


def test_the_same_seed_records_the_same_episodes(demos: Path, tmp_path: Path) -> None:
    args = [
        "collect",
        "tasks=[lift_cube,open_drawer]",
        "num_successes=4",
        "num_failures=5",
        f"out={tmp_path / 'again'}",
    ]
    assert main([*args, *TINY]) == 0
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


def test_imitation_uses_the_demonstrations_of_the_clone_run(
    cloned: Path, refined: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size_args = [
        "iterations=2",
        "critic_warmup_iterations=1",
        "rollout_steps=4",
        "final_eval_episodes=4",
        "imitation_coef=0.5",
        *TINY,
    ]
    common = ["refine", "task=lift_cube", f"checkpoint={reward_model}", *size_args]
    assert main([*common, f"policy={cloned}", f"out={tmp_path / 'held'}"]) == 0
    plain, imitated = (load_policy(folder / "policy").state_dict() for folder in (refined, tmp_path / "held"))
    assert any(not torch.equal(plain[name], imitated[name]) for name in plain)
    assert main([*common, f"policy={refined}", f"out={tmp_path / 'other'}"]) == 2
    assert "imitation_coef needs the demonstrations" in " ".join(capsys.readouterr().err.split())


def test_a_policy_of_embeddings_needs_its_own_encoder_and_views(
    demos: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["clone", "task=lift_cube", f"data={demos}", "num_demonstrations=1", "steps=5", "eval_episodes=4", *TINY]
    embedding_args = [*args, "obs_mode=proprio+embeddings", f"checkpoint={reward_model}", "env.views=[wrist]"]
    assert main([*embedding_args, f"out={tmp_path / 'cloned'}"]) == 0
    size_args = [
        "iterations=2",
        "critic_warmup_iterations=1",
        "rollout_steps=4",
        "final_eval_episodes=4",
        "env.views=[wrist]",
        *TINY,
    ]
    common = ["refine", "task=lift_cube", f"policy={tmp_path / 'cloned'}", *size_args]
    assert main([*common, f"checkpoint={reward_model}", f"out={tmp_path / 'refined'}"]) == 0
    assert main([*common, f"out={tmp_path / 'other'}"]) == 2
    assert "was cloned with another reward model" in " ".join(capsys.readouterr().err.split())
    other_views_args = [word.replace("env.views=[wrist]", "env.views=[front]") for word in common]
    assert main([*other_views_args, f"checkpoint={reward_model}", f"out={tmp_path / 'encoder'}"]) == 2
    assert "cloned from the views wrist, not front: set env.views=[wrist]" in " ".join(capsys.readouterr().err.split())
    assert main([*args, "obs_mode=proprio+embeddings", "env.views=[side]", f"out={tmp_path / 'third'}"]) == 2
    assert "unknown recorded view" in " ".join(capsys.readouterr().err.split())


def test_score_and_evaluate_agree(unseen: Path, reward_model: Path, tmp_path: Path) -> None:
    common = [f"data={unseen}", f"checkpoint={reward_model}"]
    assert main(["score", *common, "episode_indices=[3,1]", "videos=false", f"out={tmp_path / 'score'}"]) == 0
    table = pq.read_table(tmp_path / "score" / "progress.parquet").to_pydict()
    lengths = [meta.length for meta in open_dataset(unseen / "dataset").meta]
    assert len(table["index"]) == lengths[1] + lengths[3]
    assert not list((tmp_path / "score").glob("*.mp4"))
    assert main(["evaluate", *common, "report_episodes=18", "model_name=mine", f"out={tmp_path / 'evaluate'}"]) == 0
    assert {"mine", "baselines", "episodes"} == set(metrics(tmp_path / "evaluate"))
    one_episode = re.search(r'id="data">(.*?)</script>', (tmp_path / "evaluate" / "report.html").read_text())
    assert one_episode is not None
    panel = json.loads(one_episode[1])["episodes"][1]
    np.testing.assert_allclose(panel["progress"], table["progress_sparse"][: lengths[1]], atol=1e-3)


def test_goal_images_affect_only_the_fusions_that_use_them(unseen: Path, reward_model: Path, tmp_path: Path) -> None:
    """The weights are the same: only fusions with a goal image may differ."""
    results = {}
    for name, args in {
        "mean": ["use_goal_images=true"],
        "forward": ["fusion=forward", "use_goal_images=true"],
        "backward": ["fusion=backward", "use_goal_images=true"],
    }.items():
        args_line = [
            "evaluate",
            f"data={unseen}",
            f"checkpoint={reward_model}",
            "report_episodes=1",
            *args,
            f"out={tmp_path / name}",
        ]
        assert main(args_line) == 0
        results[name] = metrics(tmp_path / name)
    counts = results["mean"]["episodes"]
    assert counts["successes"] + counts["failures"] + counts.get("skipped_without_goal", 0) == 18
    assert counts["successes"] + counts["failures"] > 0
    maes = {name: numbers["reward_model"]["mae"] for name, numbers in results.items()}
    assert len({maes["mean"], maes["forward"], maes["backward"]}) == 3


def test_goal_images_need_episodes_of_one_goal(
    unseen: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [f"checkpoint={reward_model}", "fusion=backward", f"goal_images=[{tmp_path}/front.png]"]
    image = Image.new("RGB", (48, 48), (200, 30, 30))
    image.paste((20, 20, 200), (10, 10, 30, 30))
    image.save(tmp_path / "front.png")
    assert main(["evaluate", f"data={unseen}", *common, f"out={tmp_path / 'many'}"]) == 2
    assert "goal_images=[...] shows one goal" in capsys.readouterr().err
    one_episode = replace(open_dataset(unseen / "dataset").episode(0), name="episode_000000")
    with DatasetWriter(tmp_path / "one", robot_type="panda_primitives") as writer:
        writer.add(one_episode)
    assert main(["evaluate", f"data={tmp_path / 'one'}", *common, f"out={tmp_path / 'run'}"]) == 0
    assert metrics(tmp_path / "run")["episodes"] == {"successes": 1, "failures": 0}
    Image.new("RGB", (48, 48), (200, 30, 30)).save(tmp_path / "front.png")
    assert main(["evaluate", f"data={tmp_path / 'one'}", *common, f"out={tmp_path / 'blank'}"]) == 2
    assert "an image of a single color counts as absent" in capsys.readouterr().err
    (tmp_path / "front.png").write_text("no image")
    assert main(["evaluate", f"data={tmp_path / 'one'}", *common, f"out={tmp_path / 'broken'}"]) == 2
    assert "front.png: not an image that can be read" in capsys.readouterr().err


def test_bench_fusion_fills_its_section(unseen: Path, reward_model: Path, tmp_path: Path) -> None:
    source = open_dataset(unseen / "dataset")
    rows = [row for row, meta in enumerate(source.meta) if meta.metadata["task"] == "open_drawer"]
    short_rows = [row for row in rows if source.meta[row].success][:2] + [
        row for row in rows if not source.meta[row].success
    ][:2]
    with DatasetWriter(tmp_path / "short", robot_type="panda_primitives") as writer:
        for number, episode in enumerate(source.episode(row, stride=8) for row in short_rows):
            writer.add(replace(episode, name=f"episode_{number:06d}", metadata={**episode.metadata, "goal": "drawer"}))
    args = ["bench", "fusion", f"data={tmp_path / 'short'}", f"checkpoint={reward_model}"]
    assert main([*args, f"results_page={tmp_path / 'page.md'}", f"out={tmp_path / 'run'}"]) == 0
    metrics_json, text = metrics(tmp_path / "run")["bench"], (tmp_path / "page.md").read_text()
    assert metrics_json["episodes"] == {"fusions": 4, "views": 4}
    blind = {"_constant_", "_time_", "_oracle_"}
    assert set(metrics_json["views"]) == {"front + wrist", "front", "wrist", *blind}
    assert set(metrics_json["fusions"]) == {
        *("incremental", "forward", "min", "mean", "inverse_variance"),
        *(f"{kind}, with goal" for kind in ("backward", "min", "mean", "inverse_variance", "consistent")),
        *blind,
    }
    assert metrics_json["views"]["front"]["mae_failures"] != metrics_json["views"]["wrist"]["mae_failures"]
    assert (
        text.startswith("# Fusion and views\n") and "| backward, with goal | " in text and "| front + wrist | " in text
    )


def test_audit_reports_failed_cases_and_strict_exits_with_code_3(
    reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data_folder = tmp_path / "few"
    assert (
        main(
            [
                "collect",
                "tasks=[lift_cube]",
                "num_successes=2",
                "num_failures=1",
                "frame_stride=3",
                "seed=5",
                f"out={data_folder}",
                *TINY,
            ]
        )
        == 0
    )
    args = ["audit", f"data={data_folder}", f"checkpoint={reward_model}", "report_episodes=2"]
    assert main([*args, f"out={tmp_path / 'lax'}"]) == 0
    assert main([*args, "strict=true", f"out={tmp_path / 'strict'}"]) == 3
    lax_metrics, strict = metrics(tmp_path / "lax"), metrics(tmp_path / "strict")
    assert lax_metrics == strict
    failed = [name for name, row in lax_metrics["cases"].items() if row.get("passed") is False]
    assert "unmodified_success" in failed, "three optimizer steps teach nothing"
    assert len(failed) == lax_metrics["audit"]["failed"]
    assert capsys.readouterr().err.startswith(f"failed: {', '.join(failed)}; see ")
    page = re.search(r'id="data">(.*?)</script>', (tmp_path / "strict" / "report.html").read_text())
    assert page is not None
    cases, panels = json.loads(page[1])["cases"], json.loads(page[1])["episodes"]
    assert [case["name"] for case in cases if case["passed"] is False] == failed
    assert [panel["outcome"] for panel in panels] == failed[:2]


def test_an_exported_model_predicts_as_its_checkpoint(
    demos: Path, unseen: Path, cloned: Path, reward_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported = tmp_path / "exported"
    assert main(["export", f"checkpoint={reward_model}", f"out={exported}"]) == 0
    assert max(metrics(exported)["export"].values()) <= 1e-4
    for name, model in (("torch", reward_model), ("onnx", exported)):
        assert main(["evaluate", f"data={unseen}", f"checkpoint={model}", f"out={tmp_path / name}"]) == 0
    torch_metrics, onnx_metrics = (metrics(tmp_path / name)["reward_model"] for name in ("torch", "onnx"))
    assert torch_metrics == pytest.approx(onnx_metrics, abs=1e-2)
    size_args = ["iterations=2", "critic_warmup_iterations=1", "rollout_steps=4", "final_eval_episodes=2"]
    places = [f"policy={cloned}", f"checkpoint={exported}", f"out={tmp_path / 'refined'}"]
    assert main(["refine", "task=lift_cube", *size_args, *places, *TINY]) == 0
    onnx = f"init_from={exported}"
    for args in (
        ["adapt", f"data={unseen}", onnx],
        ["train", f"data={demos}", onnx],
        ["export", f"checkpoint={exported}"],
    ):
        assert main([*args, f"out={tmp_path / 'no'}"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "an exported model cannot be trained" in message and "is exported already" in message


def test_an_interrupt_is_one_line_and_the_run_can_resume(demos: Path, tmp_path: Path) -> None:
    args = [
        "train",
        f"data={demos}",
        "batch_size=2",
        "image_size=[32,32]",
        "checkpoint_seconds=0.01",
        f"out={tmp_path / 'r'}",
    ]
    # A test run in the background ignores SIGINT, and children inherit that.
    restore_interrupts = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    script = f"{restore_interrupts}; import sys; from embodied_rm.cli.main import main; sys.exit(main())"
    process = subprocess.Popen([sys.executable, "-c", script, *args], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "r" / "unfinished" / "manifest.json").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, error) == (130, "interrupted; to resume, repeat the command line with resume=true\n")
    assert main([*args, "steps=5"]) == 2, "it must not be overwritten"
    assert main([*args, "steps=5", "resume=true"]) == 2, "nor continued with another config"
    assert not (tmp_path / "r" / "metrics.json").exists()


def test_adapt_starts_from_a_trained_model(demos: Path, reward_model: Path, tmp_path: Path) -> None:
    args = [
        "adapt",
        f"data={demos}",
        "episode_index=2",
        f"init_from={reward_model}",
        "max_seconds=null",
        "steps=2",
        "batch_size=2",
    ]
    assert main([*args, f"out={tmp_path / 'adapted'}"]) == 0
    before, after = (load_progress_net(folder / "checkpoint") for folder in (reward_model, tmp_path / "adapted"))
    assert before.config == after.config
    assert metrics(tmp_path / "adapted")["adapt"]["subtasks"] > 0


def test_train_starts_from_a_trained_model(demos: Path, reward_model: Path, tmp_path: Path) -> None:
    args = ["train", f"data={demos}", f"init_from={reward_model}", "steps=1", "batch_size=2", "learning_rate=1e-9"]
    assert main([*args, f"out={tmp_path / 'on'}"]) == 0
    before, after = (load_progress_net(folder / "checkpoint") for folder in (reward_model, tmp_path / "on"))
    assert before.config == after.config
    pairs = zip(before.parameters(), after.parameters(), strict=True)
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in pairs)


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["clone", "task=lift_cub", "data={demos}"], "unknown task 'lift_cub'. Did you mean 'lift_cube'?"),
        (["clone", "task=cube_in_drawer", "data={demos}"], "unknown recorded task 'cube_in_drawer'"),
        (["clone", "task=lift_cube", "data={demos}/nowhere"], "nowhere does not exist"),
        (
            ["clone", "task=lift_cube", "data={demos}", "num_demonstrations=9"],
            "9 demonstrations requested, the dataset has 4",
        ),
        (["clone", "task=lift_cube", "data={demos}", "steps=0"], "steps must be >= 1, got 0"),
        (
            ["clone", "task=lift_cube", "data={demos}", "env.views=[fron]"],
            "unknown view 'fron'. Did you mean 'front'?",
        ),
        (["clone", "task=lift_cube", "data={demos}", "env.backend=gpu"], "unknown backend 'gpu'"),
        (
            ["clone", "task=lift_cube", "data={demos}", "env=gpu"],
            "unknown env 'gpu'. Did you mean 'cpu'? Available: cpu",
        ),
        (["clone", "data={demos}"], "task is required: embodied-rm clone task=..."),
        (["train", "data={demos}/nowhere"], "nowhere does not exist"),
        (["train", "data={demos}", "held_out={demos}"], "held out, but the same episode is trained on"),
        (["train", "data={demos}", "fusion=men"], "unknown value of fusion 'men'. Did you mean 'mean'?"),
        (["train", "data={demos}", "model=clap"], "unknown model 'clap'. Did you mean 'clip'?"),
        (["adapt", "data={demos}", "episode_index=99"], "episode 99 is not among the 18 readable episodes"),
        (["adapt", "data={demos}", "instruction=x"], "the dataset has its own instructions"),
        (["score", "data={demos}", "checkpoint={demos}"], "no checkpoint found in"),
        (
            ["score", "data={demos}", "checkpoint={reward_model}", "episode_indices=[99]"],
            "episode 99 is not among the 18 readable episodes",
        ),
        (["evaluate", "data={demos}", "checkpoint={reward_model}", "model_name=baselines"], "model_name must differ"),
        (
            ["evaluate", "data={demos}", "checkpoint={reward_model}", "fusion=man"],
            "unknown fusion 'man'. Did you mean 'mean'?",
        ),
        (
            ["evaluate", "data={unseen}", "checkpoint={reward_model}", "fusion=backward"],
            "(evaluate use_goal_images=true)",
        ),
        (["evaluate", "data={demos}", "checkpoint={reward_model}"], "the model was trained on it"),
        (
            ["evaluate", "data={demos}", "checkpoint={reward_model}", "use_goal_images=true", "goal_images=[a.png]"],
            "set one of them",
        ),
        (
            ["evaluate", "data={unseen}", "checkpoint={reward_model}", "clip_baseline=local-dir:no"],
            "no/open_clip_config.json",
        ),
        (
            ["audit", "data={demos}", "checkpoint={reward_model}", "reward.progress_scale=-1"],
            "progress_scale must be >= 0, got -1.0",
        ),
        (["audit", "data={unseen}", "checkpoint={reward_model}", "frame_stride=0"], "stride must be >= 1, got 0"),
        (["refine", "task=lift_cube", "policy={reward_model}", "checkpoint={reward_model}"], "no policy found in"),
        (["demo", "tasks=[lift]"], "unknown task of the demo 'lift'. Did you mean 'lift_cube'?"),
        (["demo", "collect.tasks=[open_drawer]"], "collect.tasks must include all tasks: lift_cube is missing"),
        (
            ["demo", "train_reward_model=true", "checkpoint={reward_model}"],
            "both select the reward model: set one of them",
        ),
        (
            ["demo", "refine.checkpoint={reward_model}"],
            "refine.checkpoint is set by checkpoint=... or train_reward_model=",
        ),
        (["demo", "train={max_secondz:3}"], "'train.max_secondz'. Did you mean 'train.max_seconds'?"),
        (["collect", "tasks=[lift]"], "unknown task 'lift'. Did you mean 'lift_cube'?"),
        (["collect", "tasks=lift_cube"], "tasks must be a list like [a,b] (each a text), got lift_cube"),
        (["collect", "speed_range=[0.5]"], "speed_range must be two shares [slowest,fastest] in (0, 1], got [0.5]"),
        (["collect", "num_successes=0", "num_failures=0"], "nothing to record"),
    ],
)
def test_an_error_is_one_sentence_and_writes_nothing(
    args: list[str],
    sentence: str,
    demos: Path,
    unseen: Path,
    reward_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    assert (
        main([*(fill(word, demos=demos, unseen=unseen, reward_model=reward_model) for word in args), f"out={out}"]) == 2
    )
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not out.exists()


def test_the_renderer_hardly_affects_predictions(tmp_path: Path) -> None:
    """Uses the bundled model: the predictions of an untrained one would say nothing."""
    args = [
        "bench",
        "renderers",
        "tasks=[lift_cube]",
        "num_envs=2",
        "frame_stride=15",
        f"checkpoint={BUNDLED_CHECKPOINT}",
    ]
    assert main([*args, f"results_page={tmp_path / 'page.md'}", f"out={tmp_path / 'run'}"]) == 0
    rows = metrics(tmp_path / "run")["bench"]["renderers"]
    assert [row["robot"] for row in rows] == ["panda", "six_axis"]
    assert all(0 < row["progress_max_difference"] <= 0.05 for row in rows), rows
    assert all(row["wrist_psnr_db"] >= 35 for row in rows)
    assert "scored by a reward model" in (tmp_path / "page.md").read_text()


def test_bench_reward_fills_its_section(reward_model: Path, tmp_path: Path) -> None:
    args = ["bench", "reward", "repeats=1", "rollout_steps=6", f"checkpoint={reward_model}", *TINY]
    assert main([*args, f"results_page={tmp_path / 'page.md'}", f"out={tmp_path / 'run'}"]) == 0
    metrics_json = metrics(tmp_path / "run")["bench"]
    assert metrics_json["learned_over_state"] == metrics_json["learned_s"] / metrics_json["state_s"]
    assert (
        f"| {metrics_json['learned_s']:.2f} | {metrics_json['learned_over_state']:.2f} |"
        in (tmp_path / "page.md").read_text()
    )
