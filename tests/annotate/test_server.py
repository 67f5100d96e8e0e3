"""What the server gives, and what it refuses: strangers, paths, bodies, and steps that make no sense."""

from __future__ import annotations

import io
import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_envs import LENGTH, STEPS, VIEWS, Answer, ask, number_in
from PIL import Image

from embodied_rm.annotate import annotation_server as module
from embodied_rm.annotate.annotation_server import AnnotationServer
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.types import Subtask

GOOD = {"subtasks": [{"name": "all of it", "start": 0, "end": LENGTH}], "success": True}


def put(server: AnnotationServer, told: Any, index: int = 0, version: str | None = None, **headers: str) -> Answer:
    """Save what is told, made of the version that is stored unless another is given."""
    version = ask(server, f"episodes/{index}").headers["ETag"] if version is None else version
    body = told if isinstance(told, bytes) else json.dumps(told).encode()
    headers = {"Content_Type": "application/json", "If_Match": version, **headers}
    return ask(server, f"episodes/{index}", "PUT", body, **headers)


def stored(folder: Path) -> list[tuple[tuple[Subtask, ...], bool | None]]:
    return [(meta.subtasks, meta.success) for meta in open_dataset(folder).meta]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_frame_has_the_number_that_it_was_asked_for_by(server):
    for frame in [0, 15, 16, 17, 59, 3, 2, 31, 32, 47]:
        for view, first in enumerate(VIEWS.values()):
            for index in (0, 1):
                answer = ask(server, f"frames/{index}/{view}/{frame}")
                assert answer.status == 200 and answer.headers["Content-Type"] == "image/jpeg"
                image = np.asarray(Image.open(io.BytesIO(answer.body)))
                assert number_in(image) == first + 100 * index + frame
                assert image.shape[:2] == ((48, 96) if view == 0 else (72, 120))


def test_what_there_is(server):
    told = ask(server, "dataset").json
    assert set(told["views"]) == set(VIEWS) and [e["name"] for e in told["episodes"]] == ["cup_0", "cup_1"]
    assert [e["subtasks"] for e in told["episodes"]] == [["reach", "grasp", "lift"], []]
    assert told["episodes"][0]["length"] == LENGTH and told["episodes"][0]["fps"] == 10
    first = ask(server, "episodes/0").json
    assert [(s["name"], s["start"], s["end"]) for s in first["subtasks"]] == [tuple(s.values()) for s in STEPS]
    assert first["success"] is None and ask(server, "episodes/1").json == {"subtasks": [], "success": None}


def test_what_is_saved_is_stored_exactly(server, folder):
    steps = [{"name": "reach", "start": 2, "end": 21}, {"name": "held “so”", "start": 30, "end": 60}]
    answer = put(server, {"subtasks": steps, "success": False})
    assert answer.status == 200 and answer.json == {"subtasks": steps, "success": False}
    assert stored(folder) == [(tuple(Subtask(**step) for step in steps), False), ((), None)]
    assert put(server, GOOD, 1, version=ask(server, "episodes/1").headers["ETag"]).status == 200
    assert [e["success"] for e in ask(server, "dataset").json["episodes"]] == [False, True]
    assert list(server.session.saved_annotations) == [0, 1]


def test_proposals_are_stored_by_nobody(server, folder):
    before = files_of(folder)
    steps = ask(server, "episodes/1/proposal").json["subtasks"]
    assert steps[0]["start"] == 0 and steps[-1]["end"] == LENGTH and files_of(folder) == before


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
        ([], '{"subtasks": [...], "success"'),
        ({"subtasks": []}, '{"subtasks": [...], "success"'),
        ({**GOOD, "file": "/etc/passwd"}, '{"subtasks": [...], "success"'),
        ({**GOOD, "success": 1}, "success is 1; true, false or null"),
        ({**GOOD, "success": "yes"}, "success is 'yes'; true, false or null"),
        ({**GOOD, "subtasks": [{"name": "a", "start": 3, "end": 3}]}, "subtask 'a' must have 0 <= start < end"),
        ({**GOOD, "subtasks": [{"name": "a", "start": -1, "end": 3}]}, "subtask 'a' must have 0 <= start < end"),
        ({**GOOD, "subtasks": [{"name": "a", "start": 0, "end": LENGTH + 1}]}, f"ends at frame {LENGTH + 1}, the videos"),
        ({**GOOD, "subtasks": [{"name": "a", "start": 0, "end": 2.0}]}, "end is 2.0; a frame index was expected"),
        ({**GOOD, "subtasks": [{"name": "a", "start": True, "end": 2}]}, "start is True; a frame index"),
        ({**GOOD, "subtasks": [{"name": "a", "start": 0}]}, 'subtask 1: {"name", "start", "end"} was expected'),
        ({**GOOD, "subtasks": [{"name": " ", "start": 0, "end": 2}]}, "subtask 1 is named ' '; a line of text"),
        ({**GOOD, "subtasks": [{"name": "a\nb", "start": 0, "end": 2}]}, "subtask 1 is named 'a\\nb'; a line of text"),
        (b'{"subtasks": [{"name": "\\ud800", "start": 0, "end": 2}], "success": null}', "a line of text was expected"),
        (
            {**GOOD, "subtasks": [{"name": "a", "start": 0, "end": 9}, {"name": "b", "start": 8, "end": 12}]},
            "subtask 'b' starts at 8, before 'a' ends",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(server, folder, told, said):
    before = files_of(folder)
    answer = put(server, told)
    assert answer.status == 422 and said in answer.json["error"] and files_of(folder) == before


def test_of_two_that_changed_the_same_version_the_later_is_refused(server, folder):
    old = ask(server, "episodes/0").headers["ETag"]
    assert put(server, GOOD, version=old).status == 200
    late = put(server, {**GOOD, "success": False}, version=old)
    assert late.status == 412 and "saved by another client since it was loaded" in late.json["error"]
    assert stored(folder)[0][1] is True
    # Who says what is stored anyhow has nothing to lose, for instance after an answer that got lost.
    assert put(server, GOOD, version=old).status == 200
    # So it is with a program beside this one.
    new = ask(server, "episodes/0").headers["ETag"]
    (folder / "cup_0" / "success.json").write_text('{"success": false}')
    assert put(server, {**GOOD, "success": None}, version=new).status == 412
    assert ask(server, "episodes/0", "PUT", b"{}", Content_Type="application/json").status == 428


def test_many_at_once_do_not_lose_each_other(server, folder):
    """Of those that change one version, exactly one is stored, whatever the order."""
    version = ask(server, "episodes/0").headers["ETag"]
    told = [{"subtasks": [{"name": f"step {i}", "start": 0, "end": 9}], "success": None} for i in range(12)]
    answers: list[Answer] = []
    threads = [threading.Thread(target=lambda t=t: answers.append(put(server, t, version=version))) for t in told]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status for answer in answers) == [200, *[412] * 11]
    (won,) = (answer.json for answer in answers if answer.status == 200)
    assert ask(server, "episodes/0").json == won


ROUTES = [("GET", path) for path in ("", *module.PAGE_FILES, "dataset", "episodes/0")]
ROUTES += [("GET", "episodes/1/proposal"), ("GET", "frames/0/0/0"), ("PUT", "episodes/0"), ("GET", "nothing")]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_wants_the_token_the_host_and_no_other_origin(server, folder, method, path):
    before = files_of(folder)
    body = json.dumps(GOOD).encode() if method == "PUT" else None
    version = ask(server, "episodes/0").headers["ETag"]
    right = {"Content_Type": "application/json", "If_Match": version}
    here = f"http://127.0.0.1:{server.server_port}"
    wrong: list[tuple[str | None, dict[str, str]]] = [
        ("", {}),
        (server.token[:-1], {}),
        (server.token + "a", {}),
        (server.token.swapcase(), {}),
        (None, {"Origin": "http://evil.example"}),
        (None, {"Origin": "null"}),
        (None, {"Origin": here.replace("http:", "https:")}),
        (None, {"Origin": here + "0"}),
        (None, {"Host": "evil.example"}),
        (None, {"Host": f"evil.example:{server.server_port}"}),
        (None, {"Host": "127.0.0.1"}),
    ]
    for token, headers in wrong:
        answer = ask(server, path, method, body, token, **right, **headers)
        assert answer.status == 403 and set(answer.json) == {"error"}
        assert server.token not in answer.body.decode() and files_of(folder) == before
    assert ask(server, path, method, body, **right, Origin=here).status == (404 if path == "nothing" else 200)


def test_nothing_that_is_served_may_reach_outside(server):
    for method, path in ROUTES:
        answer = ask(server, path, method)
        policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert {source for sources in policy.values() for source in sources.split()} == {"'none'", "'self'", "data:"}
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (
            answer.headers["Referrer-Policy"] == "no-referrer" and "Access-Control-Allow-Origin" not in answer.headers
        )
        assert b"http:" not in answer.body and b"https:" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/annotate.js",
        "/etc/passwd",
        "annotate.js/../annotation_server.py",
        "annotation_server.py",
        "frames/0/0/../../../secret",
        "frames/0/top/0",
        "frames/0/0/-1",
        f"frames/0/0/{LENGTH}",
        "frames/0/3/0",
        "frames/2/0/0",
        "frames/0/0/" + "9" * 30,
        "frames/0/0/0%00",
        "episodes/2",
        "episodes/-1",
        "episodes/00000000000",
        "episodes/0/../../x",
        "episodes/cup_0",
        "dataset?file=/etc/passwd",
    ],
)
def test_no_path_leads_anywhere(server, folder, path, monkeypatch):
    opened: list[str] = []
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *a, **k: (opened.append(str(self)), plain(self, *a, **k))[1])
    answer = ask(server, path)
    assert answer.status == 404 and b"root:" not in answer.body and opened == []
    assert ask(server, path, "PUT", b"{}", If_Match="x", Content_Type="application/json").status in (404, 405)


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused_in_json(server, method):
    answer = ask(server, "episodes/0", method, b"{}")
    assert answer.status == 501 and set(answer.json) == {"error"}


def raw(server: AnnotationServer, sent: bytes) -> bytes:
    """What comes back on a connection into which these bytes are sent."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def head(server: AnnotationServer, *lines: str) -> bytes:
    begin = (f"PUT /{server.token}/episodes/0 HTTP/1.1", f"Host: 127.0.0.1:{server.server_port}", 'If-Match: "x"')
    return "\r\n".join([*begin, "Content-Type: application/json", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((f"Content-Length: {module.MAX_BODY_BYTES + 1}",), b"413"),
        (("Content-Length: " + "9" * 15,), b"413"),
        (("Content-Length: " + "9" * 40,), b"411"),
        (("Content-Length: -1",), b"411"),
        (("Content-Length: 2", "Content-Length: 3"), b"411"),
        (("Transfer-Encoding: chunked",), b"411"),
        (("Content-Length: 2", "Transfer-Encoding: chunked"), b"411"),
        ((), b"411"),
    ],
)
def test_a_body_without_a_bound_is_refused_before_it_is_read(server, lines, status):
    answer = raw(server, head(server, *lines))
    assert answer.startswith(b"HTTP/1.1 " + status) and b"Connection: close" in answer and b'"error"' in answer


def test_the_longest_body_is_read(server, folder):
    """A request of exactly the bound is taken for what it is: of a byte more, nothing is read."""
    body = json.dumps(GOOD).encode()
    assert put(server, body + b" " * (module.MAX_BODY_BYTES - len(body))).status == 200 and stored(folder)[0][1] is True


def test_what_nobody_reads_is_not_taken_for_the_next_request(server):
    for path in ("dataset", "nothing"):
        inner = f"GET /{server.token}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n"
        outer = f"{inner}Content-Length: {len(inner) + 2}\r\n\r\n"
        assert raw(server, f"{outer}{inner}\r\n".encode()).count(b"HTTP/1.1 ") == 1


NO_HTTP = (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000)


@pytest.mark.parametrize("sent", NO_HTTP)
def test_what_is_no_http_is_refused_and_the_server_lives(server, sent):
    assert b'"error"' in raw(server, sent)
    assert ask(server, "dataset").status == 200


def test_what_cannot_be_written_is_told_and_can_be_tried_again(server, folder, monkeypatch):
    def full(self: Path, *args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", full)
        answer = put(server, GOOD)
    assert answer.status == 500 and "No space left" in answer.json["error"]
    assert stored(folder)[0][1] is None and server.session.saved_annotations == {}
    assert put(server, GOOD).status == 200 and stored(folder)[0][1] is True


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1" and server.url.startswith("http://127.0.0.1:")
    assert len(server.token) >= 32
    with pytest.raises(UserError, match=f"port {server.server_port} of 127.0.0.1 cannot be used"):
        AnnotationServer(server.session, server.server_port)
    with pytest.raises(UserError, match="port 70000"):
        AnnotationServer(server.session, 70_000)
