"""The commands that score, evaluate, audit and export a trained reward model agree with each other."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from real_data import REAL_DATA
from tiny_runs import NUM_EPISODES, REFINE, TINY, metrics

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset


def test_score_and_evaluate_agree(unseen: Path, reward_model: Path, tmp_path: Path) -> None:
    common = [f"data={unseen}", f"checkpoint={reward_model}"]
    assert main(["score", *common, "episode_indices=[3,1]", "videos=false", f"out={tmp_path / 'score'}"]) == 0
    table = pq.read_table(tmp_path / "score" / "progress.parquet").to_pydict()
    lengths = [meta.length for meta in open_dataset(unseen / "dataset").meta]
    assert len(table["index"]) == lengths[1] + lengths[3]
    assert not list((tmp_path / "score").rglob("*.mp4"))
    assert (
        main(
            ["evaluate", *common, f"report_episodes={NUM_EPISODES}", "model_name=mine", f"out={tmp_path / 'evaluate'}"]
        )
        == 0
    )
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
    assert counts["successes"] + counts["failures"] + counts.get("skipped_without_goal", 0) == NUM_EPISODES
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
        for number, episode in enumerate(source.episode(row, stride=3) for row in short_rows):
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
    places = [f"policy={cloned}", f"checkpoint={exported}", f"out={tmp_path / 'refined'}"]
    assert main([*REFINE, *places]) == 0
    onnx = f"init_from={exported}"
    for args in (
        ["adapt", f"data={unseen}", onnx],
        ["train", f"data={demos}", onnx],
        ["export", f"checkpoint={exported}"],
    ):
        assert main([*args, f"out={tmp_path / 'no'}"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "an exported model cannot be trained" in message and "is exported already" in message


def test_evaluate_and_audit_read_the_chosen_episodes_only(unseen: Path, reward_model: Path, tmp_path: Path) -> None:
    common = [f"data={unseen}", f"checkpoint={reward_model}", "episode_indices=[2,0]"]
    assert main(["evaluate", *common, f"out={tmp_path / 'evaluate'}"]) == 0
    counts = metrics(tmp_path / "evaluate")["episodes"]
    assert counts["successes"] + counts["failures"] == 2
    assert main(["audit", *common, f"out={tmp_path / 'audit'}"]) == 0
    assert metrics(tmp_path / "audit")["cases"]["future"]["num_trials"] == 2


def test_failed_real_attempts_are_evaluated_by_their_outcome(tmp_path: Path) -> None:
    """Nothing is known of the rollouts but whether they succeeded."""
    source = open_dataset(REAL_DATA / "bridge_rollouts")
    chosen = [next(i for i, meta in enumerate(source.meta) if meta.success is outcome) for outcome in (True, False)]
    words = [f"data={REAL_DATA / 'bridge_rollouts'}", "checkpoint=real", f"episode_indices={chosen}".replace(" ", "")]
    assert main(["evaluate", *words, f"out={tmp_path / 'run'}"]) == 0
    result = metrics(tmp_path / "run")
    assert result["episodes"] == {"successes": 1, "failures": 1, "unknown_progress": 2}
    assert {"voc", "success_auc", "completion_accuracy", "ood_rate"} <= result["reward_model"].keys()
    assert result["reward_model"].keys().isdisjoint({"mae", "epic"})
