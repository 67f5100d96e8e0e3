"""The results page: every command writes its own section only."""

from pathlib import Path

import pytest
from tiny_runs import TINY, metrics

from embodied_rm.cli.main import main
from embodied_rm.experiments.results_page import write_section
from embodied_rm.paths import BUNDLED_CHECKPOINT


def test_a_section_is_replaced_in_place(tmp_path):
    page = tmp_path / "benchmarks.md"
    write_section(page, "bench one", "## One\n\nfirst \\1")
    write_section(page, "bench two", "## Two\n\nsecond")
    write_section(page, "bench one", "## One\n\nthird \\g<0>")
    text = page.read_text()
    assert text.startswith("# Benchmarks\n")
    assert "first" not in text and text.count("## One") == text.count("## Two") == 1
    assert text.index("third \\g<0>") < text.index("second")


def test_a_command_of_two_words_runs_and_fills_its_section(tmp_path, capsys):
    line = "bench experts tasks=[press_button] num_episodes=2 num_warp_episodes=1"
    assert main([*line.split(), f"out={tmp_path / 'run'}", f"results_page={tmp_path / 'page.md'}"]) == 0
    assert (tmp_path / "run/metrics.json").exists()
    text = (tmp_path / "page.md").read_text()
    assert "| press_button | panda | 1.00 | 1.00 | 1.00 |" in text and "| press_button | six_axis |" in text


def test_a_model_is_timed_in_both_runtimes(tmp_path):
    line = "bench model num_envs=2 repeats=1 image_size=32"
    assert main([*line.split(), f"out={tmp_path / 'run'}", f"results_page={tmp_path / 'page.md'}"]) == 0
    bench = metrics(tmp_path / "run")["bench"]
    speeds = bench["ONNX Runtime_per_s"], bench["eager torch_per_s"]
    assert bench["ONNX Runtime_to_eager torch"] == pytest.approx(speeds[0] / speeds[1])
    assert 0 < bench["largest_difference"] <= 1e-4
    text = (tmp_path / "page.md").read_text()
    assert "| ONNX Runtime | " in text and "| bf16 and CUDA graphs | " in text
    speed_result, ratio_result = (
        "met" if bench[name] >= target else "missed"
        for name, target in (("ONNX Runtime_per_s", 10_000), ("ONNX Runtime_to_eager torch", 3))
    )
    assert f"ONNX Runtime per s: 10,000, {speed_result}; ONNX Runtime to eager torch: 3, {ratio_result}." in text


def test_scoring_and_decoding_are_timed(tmp_path):
    line = "bench score num_frames=40 image_size=[48,64] repeats=2"
    assert main([*line.split(), f"out={tmp_path / 'run'}", f"results_page={tmp_path / 'page.md'}"]) == 0
    bench = metrics(tmp_path / "run")["bench"]
    assert (bench["frames"], bench["views"], bench["image_size"]) == (40, 3, "64x48")
    assert bench["scored_to_decoded"] > 0 and bench["decoded_per_s"] > 0
    assert (tmp_path / "run/scored_0/progress.parquet").exists()
    assert (
        f"| scored | {bench['scored_per_s']:,.0f} | {bench['scored_to_decoded']:.2f} |"
        in (tmp_path / "page.md").read_text()
    )


@pytest.mark.parametrize("words", [["bench"], ["bench", "simm"]])
def test_an_unknown_benchmark_lists_the_available_ones(words, capsys):
    assert main(words) == 2
    assert "bench sim" in capsys.readouterr().err


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
