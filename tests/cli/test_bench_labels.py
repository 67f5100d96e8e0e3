"""`embodied-rm bench labels`: every cell once, a table of all cells, early errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from sprites import episodes

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.experiments.label_benchmark import COLUMN_TITLES, format_seeds


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Folders of episodes for training, for evaluation, and without annotation."""
    root = tmp_path_factory.mktemp("data")
    episodes_by_folder = {"known": episodes(6), "unseen": episodes(3, start=50)}
    episodes_by_folder["bare"] = [replace(episode, subtasks=()) for episode in episodes_by_folder["known"]]
    for name, folder_episodes in episodes_by_folder.items():
        with DatasetWriter(root / name) as writer:
            for episode in folder_episodes:
                writer.add(episode)
    return root


def make_args(data, *args: str, train_folder: str = "known") -> list[str]:
    folders = [f"data={data / train_folder}", f"eval_data={data / 'unseen'}"]
    return ["bench", "labels", *folders, "steps=2", "image_size=[32,32]", *args]


def test_cells_are_trained_once_and_the_page_has_a_row_for_each_scheme(data, tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "labels.md"
    args = make_args(data, "label_schemes=[hops,ordinal]", "num_seeds=2", f"out={run}", f"results_page={page}")
    assert main(args) == 0
    cells = {name: [run / name / seed / "metrics.json" for seed in "01"] for name in ("hops", "ordinal")}
    metrics = json.loads((run / "metrics.json").read_text())["bench"]
    text = page.read_text()
    for name, paths in cells.items():
        seed_metrics = [json.loads(path.read_text())["reward_model"] for path in paths]
        assert [seed["mae_failures"] for seed in metrics["label_schemes"][name]["seeds"]] == [
            s["mae_failures"] for s in seed_metrics
        ]
        assert format_seeds(seed_metrics)["mae_failures"] in text
    assert (
        metrics["label_schemes"]["ordinal"]["fusion"] == "forward"
        and metrics["label_schemes"]["hops"]["fusion"] == "mean"
    )
    rows = [row.split(" | ")[0] for row in text.splitlines() if row.startswith("| ")]
    assert rows == ["| labels", "| `hops`", "| `ordinal`*", "| _constant_", "| _time_", "| _oracle_"]

    modified_ns = {path: path.stat().st_mtime_ns for path in (*cells["hops"], cells["ordinal"][0])}
    cells["ordinal"][1].unlink()
    page.with_suffix(".jsonl").unlink()
    (run / "metrics.json").unlink()
    assert main([*args, "resume=true"]) == 0
    assert {path: path.stat().st_mtime_ns for path in modified_ns} == modified_ns and cells["ordinal"][1].exists()
    assert json.loads((run / "metrics.json").read_text())["bench"] == metrics

    other_run = tmp_path / "elsewhere"
    assert main([word.replace(str(run), str(other_run)) for word in args]) == 0, (
        "all results are read from the results cache"
    )
    assert json.loads((other_run / "metrics.json").read_text())["bench"] == metrics
    assert not (other_run / "hops").exists()


def test_a_row_has_mean_and_deviation_and_a_dash_for_missing_metrics():
    row = format_seeds([{"voc": 0.5, "epic": 0.25}, {"voc": 0.7}])
    assert row["voc"] == "0.600 ± 0.141" and row["epic"] == "0.250" and row["mae_failures"] == "-"
    assert list(row) == list(COLUMN_TITLES)


@pytest.mark.parametrize(
    ("args", "train_folder", "message"),
    [
        (["label_schemes=[hop]"], "known", "unknown labeling scheme 'hop'. Did you mean 'hops'?"),
        (["num_seeds=0"], "known", "num_seeds must be >= 1, got 0"),
        (["eval_data=null"], "known", "data and eval_data belong together"),
        (
            ["label_schemes=[time,stages]"],
            "bare",
            "label scheme 'stages' needs annotated subtasks, and no",
        ),
    ],
)
def test_invalid_settings_fail_before_training(data, tmp_path, capsys, args, train_folder, message):
    assert main(make_args(data, *args, f"out={tmp_path / 'run'}", train_folder=train_folder)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
