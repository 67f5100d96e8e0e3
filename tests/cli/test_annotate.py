"""Commands with a page, `annotate` and `prefer person=true`: the server, its output, and what they refuse."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import corruptions
import pytest
import tiny_vlm
from forked_program import ForkedProgram
from lerobot_v21 import write_v21_dataset

from embodied_rm.cli.commands.annotate import AnnotateCommand, make_proposer
from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.labels.comparisons import read_comparisons
from embodied_rm.models.judges.judge_config import JudgeConfig
from embodied_rm.types import Subtask

PAGE_ADDRESS = re.compile(r"open\s+(http://127\.0\.0\.1:\d+/\S+/)\s+in")
SUBTASKS = [{"name": "reach", "start": 0, "end": 5}, {"name": "lift", "start": 5, "end": 12}]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    with DatasetWriter(tmp_path / "run" / "dataset") as writer:
        for i in range(3):
            writer.add(corruptions.make_episode(i))
    return tmp_path / "run"


class PageProcess(NamedTuple):
    """A command that serves a page."""

    url: str  # of the page, from its output
    program: ForkedProgram

    def put(self, path: str, payload: object, **headers: str) -> None:
        """Store a payload as the page does."""
        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self.url + path, json.dumps(payload).encode(), headers, method="PUT")
        urllib.request.urlopen(request)

    def interrupt(self) -> str:
        """Press Ctrl-C, check that the command ends well, and return its output."""
        self.program.send_signal(signal.SIGINT)
        assert self.program.wait() == 0 and self.program.errors == ""
        return self.program.output


RunPage = Callable[..., AbstractContextManager[PageProcess]]


@pytest.fixture
def run_page(tmp_path_factory: pytest.TempPathFactory) -> RunPage:
    """A function that runs a command until it has printed the address of its page."""

    @contextmanager
    def run(*arguments: str) -> Iterator[PageProcess]:
        program = ForkedProgram(arguments, tmp_path_factory.mktemp("printed"))
        try:
            program.wait_until(lambda: PAGE_ADDRESS.search(program.output))
            (url,) = PAGE_ADDRESS.findall(program.output)
            yield PageProcess(url, program)
        finally:
            program.process.kill()

    return run


def test_annotate_serves_until_ctrl_c_and_prints_what_was_saved(dataset: Path, run_page: RunPage) -> None:
    with run_page("annotate", f"data={dataset}", "subtasks=[reach, lift]") as page:
        proposed_subtasks = json.load(urllib.request.urlopen(f"{page.url}episodes/1/proposal"))["subtasks"]
        assert [step["name"] for step in proposed_subtasks] == ["reach", "lift"]
        version = urllib.request.urlopen(f"{page.url}episodes/1").headers["ETag"]
        page.put("episodes/1", {"subtasks": SUBTASKS, "success": False}, **{"If-Match": version})
        output = page.interrupt()
    name = open_dataset(dataset / "dataset").meta[1].name
    assert re.search(rf"saved\n +{name} +2 subtasks, failure\n", output)
    meta = open_dataset(dataset / "dataset").meta[1]
    assert meta.subtasks == tuple(Subtask(**step) for step in SUBTASKS) and meta.success is False


def test_a_person_compares_clips_until_ctrl_c_and_goes_on(tmp_path: Path, run_page: RunPage) -> None:
    dataset, run = tmp_path / "dataset", tmp_path / "pairs"
    with DatasetWriter(dataset) as writer:
        for i in range(3):
            writer.add(replace(corruptions.make_episode(i), instruction="lift the cube"))
    prefer = ["prefer", f"data={dataset}", "person=true", "num_pairs=4", f"out={run}"]
    with run_page(*prefer) as page:
        page.put("pairs/0", {"choice": "A"})
        page.put("pairs/2", {"choice": "neither"})
        assert "not finished: resume=true asks for the other answers" in page.interrupt()
    assert not (run / "metrics.json").exists()
    with run_page(*prefer, "resume=true") as page:
        choices = json.load(urllib.request.urlopen(f"{page.url}comparisons"))["choices"]
        assert choices == ["A", "skip", "neither", "skip"]
        page.put("pairs/1", {"choice": "B"})
        page.put("pairs/3", {"choice": "B"})
        page.interrupt()
    counts = {"pairs": 4, "decided": 3, "neither": 1, "contradiction": 0, "unanswered": 0}
    assert json.loads((run / "metrics.json").read_text())["prefer"] == counts
    assert [comparison.is_decided for comparison in read_comparisons(run)] == [True, True, False, True]


def test_annotate_rejects_a_format_that_it_cannot_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_v21_dataset(tmp_path / "old", [corruptions.make_episode(0)])
    assert main(["annotate", f"data={root}"]) == 2
    error = capsys.readouterr().err
    assert f"so it cannot be annotated; `embodied-rm convert data={root}` writes a dataset that can" in error
    assert error.count("\n") == 1


def test_an_unusable_port_is_an_error(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["annotate", f"data={dataset}", "port=99999"]) == 2
    assert "port 99999 of 127.0.0.1 cannot be used" in capsys.readouterr().err


def test_a_judge_proposes_the_named_subtasks(dataset: Path, tmp_path: Path) -> None:
    judge = JudgeConfig(
        type="question", folder=tiny_vlm.save_model(tmp_path / "judge", answer="<progress>70%</progress>")
    )
    config = AnnotateCommand(data=dataset, subtasks=("reach", "lift", "put"), judge=judge)
    video = next(iter(open_dataset(dataset / "dataset")))
    steps = make_proposer(config)(video)
    assert [step.name for step in steps] == ["reach", "lift", "put"]
    assert [step.start for step in steps[:2]] == [0, 1], "70 % at once: the second of three subtasks is done"
    with pytest.raises(UserError, match="name them, subtasks="):
        make_proposer(AnnotateCommand(data=dataset, judge=judge))


def test_a_dataset_is_annotated_by_one_process_at_a_time(
    dataset: Path, tmp_path: Path, run_page: RunPage, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(dataset / "dataset")
    with run_page("annotate", f"data={dataset}") as page:
        for path in (dataset, dataset / "dataset", tmp_path / "link"):
            assert main(["annotate", f"data={path}"]) == 2
            error = capsys.readouterr().err
            assert f"{dataset / 'dataset'} is in use by process {page.program.pid}" in error and "out=" not in error
        page.interrupt()
    assert not list(dataset.rglob(".lock")), "the next process can annotate it"
