"""The model card lists its metrics."""

from huggingface_hub import ModelCard

from embodied_rm.audit import AuditResult
from embodied_rm.audit.cases import AUDIT_CASES
from embodied_rm.paths import CHECKPOINTS_DIR
from embodied_rm.report.front_matter import evaluation_result, front_matter
from embodied_rm.report.model_card import METRIC_COLUMNS, model_card


def test_card_has_a_row_per_split_task_and_case():
    def split_metrics(voc: float) -> dict:
        baselines = {"time": {"voc": 1.0}}
        return {
            "reward_model": {"voc": voc, "success_auc": 1.0},
            "tasks": {"lift_cube": {"voc": voc}},
            "baselines": baselines,
        }

    paraphrase = next(case for case in AUDIT_CASES if case.name == "paraphrase_order_correlation")
    metrics = {
        "collect": {"episodes": 3, "successes": 2, "frames": 70},
        "train": {"parameters": 1234567, "seconds": 1800.0},
        "calibrate": {"interval_scale": 2.5, "episodes": 40},
        "splits": {"seen": split_metrics(0.987), "unseen_arm": split_metrics(0.5)},
        "audit": {"passed": 1, "failed": 1, "skipped": 1},
        "cases": {
            "time_baseline": {"expected": "at most 0.05", "value": 0.09, "passed": False},
            "black_images": {"expected": "at most 0.05", "value": 0.0, "passed": True},
            "paraphrase_order_correlation": AuditResult(case=paraphrase, value=None, num_trials=0).as_dict(),
        },
        "seconds": {"total": 3600.0},
        "machine": "two cores",
        "init_sha256": None,
    }
    text = model_card(metrics)
    head = ModelCard(text).data
    assert (head.library_name, head.pipeline_tag, head.license) == ("embodied_rm", "robotics", "apache-2.0")
    assert {(result.dataset_name, result.metric_type): result.metric_value for result in head.eval_results} == {
        ("simulated tabletop tasks, split seen", "voc"): 0.987,
        ("simulated tabletop tasks, split seen", "success_auc"): 1.0,
        ("simulated tabletop tasks, split unseen_arm", "voc"): 0.5,
        ("simulated tabletop tasks, split unseen_arm", "success_auc"): 1.0,
    }
    assert "Trained from random weights by" in text
    assert "continued from the checkpoint with the `manifest_sha256` `ab12`" in model_card(
        {**metrics, "init_sha256": "ab12"}
    )
    assert "counts as done" not in text
    calibrated = {**metrics, "calibrate": {"interval_scale": 2.5, "episodes": 40, "success_threshold": 0.6125}}
    assert "A frame counts as done from a success probability of 0.613" in model_card(calibrated)
    lines = text.splitlines()
    assert "value +- 2.50 (uncertainty + 0.01)" in text and "of 40 other episodes" in text
    assert "1,234,567 parameters. 60 minutes in total, 30 of them training, on two cores." in lines
    assert f"| seen | 0.987 | - | 1.000 |{' - |' * (len(METRIC_COLUMNS) - 3)}" in lines
    for split in ("seen", "unseen_arm"):
        assert f"| _time_ ({split}) | 1.000 |{' - |' * (len(METRIC_COLUMNS) - 1)}" in lines
    assert [line for line in lines if line.startswith("| lift_cube")] == [
        f"| lift_cube (seen) | 0.987 |{' - |' * (len(METRIC_COLUMNS) - 1)}"
    ]
    assert "| time_baseline | at most 0.05 | 0.09 | **failed** |" in lines
    assert "| black_images | at most 0.05 | 0 | passed |" in lines
    assert f"| paraphrase_order_correlation | needs {paraphrase.required_data} | - | skipped |" in lines


def test_the_head_of_a_card_leaves_out_what_is_unknown() -> None:
    head = ModelCard(front_matter(datasets=["people/carrying"])).data
    assert head.datasets == ["people/carrying"] and head.tags == ["reward-model", "robotics"]
    assert head.license is None and head.eval_results is None
    result = evaluation_result(
        "a lab", {"voc": 0.12345, "mae": float("nan"), "other": 1.0}, {"voc": "VOC", "mae": "MAE"}
    )
    assert result["metrics"] == [{"type": "voc", "name": "VOC", "value": 0.123}]


def test_the_head_of_the_model_of_real_robots_has_the_figures_of_its_tables() -> None:
    text = (CHECKPOINTS_DIR / "real" / "README.md").read_text()
    results = ModelCard(text).data.eval_results
    assert {result.dataset_name for result in results} == {"DROID, lab_4, validation", "DROID, lab_5, lab_6, test"}
    for result in results:
        (row,) = (line for line in text.splitlines() if line.startswith(f"| {result.metric_name} |"))
        assert f" {result.metric_value:.3f} " in row
