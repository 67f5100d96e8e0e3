"""`embodied-rm bench labels`: every cell once, a table of all, mistakes before the hours are spent."""

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
    """Folders of episodes to train on, to judge on, and without annotation."""
    root = tmp_path_factory.mktemp("data")
    shown = {"known": episodes(6), "unseen": episodes(3, start=50)}
    shown["bare"] = [replace(episode, subtasks=()) for episode in shown["known"]]
    for name, each in shown.items():
        with DatasetWriter(root / name) as writer:
            for episode in each:
                writer.add(episode)
    return root


def line(data, *words: str, known: str = "known") -> list[str]:
    where = [f"data={data / known}", f"eval_data={data / 'unseen'}"]
    return ["bench", "labels", *where, "steps=2", "image_size=[32,32]", *words]


def test_cells_are_trained_once_and_the_page_has_a_row_for_each_scheme(data, tmp_path, capsys):
    run, page = tmp_path / "run", tmp_path / "labels.md"
    words = line(data, "label_schemes=[hops,ordinal]", "num_seeds=2", f"out={run}", f"results_page={page}")
    assert main(words) == 0
    cells = {name: [run / name / seed / "metrics.json" for seed in "01"] for name in ("hops", "ordinal")}
    told = json.loads((run / "metrics.json").read_text())["bench"]
    text = page.read_text()
    for name, paths in cells.items():
        single = [json.loads(path.read_text())["reward_model"] for path in paths]
        assert [seed["mae_failures"] for seed in told["label_schemes"][name]["seeds"]] == [s["mae_failures"] for s in single]
        assert format_seeds(single)["mae_failures"] in text
    assert told["label_schemes"]["ordinal"]["fusion"] == "forward" and told["label_schemes"]["hops"]["fusion"] == "mean"
    rows = [row.split(" | ")[0] for row in text.splitlines() if row.startswith("| ")]
    assert rows == ["| labels", "| `hops`", "| `ordinal`*", "| _constant_", "| _time_", "| _oracle_"]

    written = {path: path.stat().st_mtime_ns for path in (*cells["hops"], cells["ordinal"][0])}
    cells["ordinal"][1].unlink()
    page.with_suffix(".jsonl").unlink()
    (run / "metrics.json").unlink()
    assert main([*words, "resume=true"]) == 0
    assert {path: path.stat().st_mtime_ns for path in written} == written and cells["ordinal"][1].exists()
    assert json.loads((run / "metrics.json").read_text())["bench"] == told

    elsewhere = tmp_path / "elsewhere"
    assert main([word.replace(str(run), str(elsewhere)) for word in words]) == 0, "all is read from beside the page"
    assert json.loads((elsewhere / "metrics.json").read_text())["bench"] == told
    assert not (elsewhere / "hops").exists()


def test_a_row_is_mean_and_spread_and_a_dash_for_what_was_not_measured():
    row = format_seeds([{"voc": 0.5, "epic": 0.25}, {"voc": 0.7}])
    assert row["voc"] == "0.600 ± 0.141" and row["epic"] == "0.250" and row["mae_failures"] == "-"
    assert list(row) == list(COLUMN_TITLES)


@pytest.mark.parametrize(
    ("words", "known", "message"),
    [
        (["label_schemes=[hop]"], "known", "unknown labeling scheme 'hop'. Did you mean 'hops'?"),
        (["num_seeds=0"], "known", "num_seeds must be >= 1, got 0"),
        (["eval_data=null"], "known", "data and eval_data belong together"),
        (["label_schemes=[time,stages]"], "bare", "the column subtasks is missing, which label scheme 'stages' needs"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(data, tmp_path, capsys, words, known, message):
    assert main(line(data, *words, f"out={tmp_path / 'run'}", known=known)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
