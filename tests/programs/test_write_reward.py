"""`embodied-rm write-reward` against an OpenAI-compatible server, from its transcript, and with random changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from planted_programs import GOOD_PROGRAMS
from server_threads import serve_in_thread

from embodied_rm.cli.main import main
from embodied_rm.experiments.write_reward import describe_goal
from embodied_sim.registry import make_task

SMALL = ["generations=2", "candidates=1", "iterations=3", "rollout_steps=6", "num_envs=4"]
SMALL += ["eval_episodes=4", "final_eval_episodes=8"]


class LanguageModel(BaseHTTPRequestHandler):
    """Answers the first round with a misspelled program, its repair with a good one, and later rounds with another."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert body["temperature"] == 0.7 and body["model"] == "writer"
        question = body["messages"][-1]["content"][0]["text"]
        program = GOOD_PROGRAMS["turn_lever"]
        if "was refused" not in question and "best program" not in question:
            program = program.replace("joint_lever", "joint_lver")
        elif "best program" in question:
            program = program.replace("progress = swing", "progress = swing ** 0.5")
        content = {"choices": [{"message": {"content": f"Here it is.\n```\n{program}\n```"}}]}
        reply = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), LanguageModel)
    with serve_in_thread(server):
        yield f"http://127.0.0.1:{server.server_port}/v1"


def read_results(folder: Path) -> tuple[str, str, str]:
    return tuple((folder / name).read_text() for name in ("program.txt", "candidates.json", "metrics.json"))  # type: ignore[return-value]


def test_a_search_is_repeated_from_its_transcript(lever_policy: Path, url: str, tmp_path: Path) -> None:
    command = ["write-reward", "task=turn_lever", f"policy={lever_policy}", *SMALL, "temperature=0.7"]
    assert main([*command, f"writer.url={url}", "writer.model=writer", f"out={tmp_path}/live"]) == 0
    metrics = json.loads((tmp_path / "live" / "metrics.json").read_text())["write_reward"]
    assert (metrics["tried"], metrics["refused"]) == (2, 1)
    candidates = json.loads((tmp_path / "live" / "candidates.json").read_text())["candidates"]
    assert [candidate["name"] for candidate in candidates] == ["1_1", "1_1_1", "2_1"]
    assert "Did you mean 'joint_lever'?" in candidates[0]["issues"][0]
    assert set(candidates[1]["report"]["terms"]) == {"sign", "angle", "swing", "progress"}
    assert sum(candidates[1]["report"]["endings"].values()) == 32
    transcript = tmp_path / "live" / "transcript.jsonl"
    assert len(transcript.read_text().splitlines()) == 3 and (tmp_path / "live" / "report.html").exists()
    assert main([*command, f"transcript={transcript}", f"out={tmp_path}/again"]) == 0
    assert read_results(tmp_path / "again") == read_results(tmp_path / "live")


@pytest.mark.parametrize(
    ("task", "goal"),
    [
        ("turn_lever", "turn the lever clockwise or anticlockwise"),
        ("stack_cubes", "put the named object on top of the other object"),
        ("lift_cube", "lift the named cube"),
    ],
)
def test_the_goal_is_that_of_all_episodes(task: str, goal: str) -> None:
    assert describe_goal(make_task(task)) == goal


def test_random_changes_are_the_control(lever_policy: Path, tmp_path: Path) -> None:
    (tmp_path / "first.txt").write_text(GOOD_PROGRAMS["turn_lever"])
    command = [
        "write-reward",
        "task=turn_lever",
        f"policy={lever_policy}",
        *SMALL,
        f"first_program={tmp_path}/first.txt",
    ]
    assert main([*command, f"out={tmp_path}/run"]) == 0
    candidates = json.loads((tmp_path / "run" / "candidates.json").read_text())["candidates"]
    assert candidates[0]["source"] == GOOD_PROGRAMS["turn_lever"] and len(candidates) >= 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing writes programs: set writer.url="),
        (["first_program=a.txt", "transcript=b.jsonl"], "leave out writer= and transcript=, or first_program="),
        (["writer.url=http://localhost:1/v1"], "writer.model must name the model at http://localhost:1/v1"),
        (["output=both", "transcript=b.jsonl"], "progress, reward"),
    ],
)
def test_what_writes_must_be_clear(
    arguments: list[str], message: str, lever_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["write-reward", "task=turn_lever", f"policy={lever_policy}", *arguments, f"out={tmp_path}/run"]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
