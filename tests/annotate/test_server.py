"""Responses of the annotation server, and the requests it rejects."""

from __future__ import annotations

import io
import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from annotated_envs import LENGTH, SUBTASK_ENTRIES, VIEWS, Response, read_number, send_request
from PIL import Image

from embodied_rm.annotate.annotation_server import AnnotationHandler, AnnotationServer
from embodied_rm.annotate.local_page import MAX_BODY_BYTES
from embodied_rm.data.open_dataset import open_dataset
from embodied_rm.errors import UserError
from embodied_rm.types import Subtask

VALID = {"subtasks": [{"name": "all of it", "start": 0, "end": LENGTH}], "success": True}


def save(
    server: AnnotationServer, payload: Any, index: int = 0, version: str | None = None, **headers: str
) -> Response:
    """Save a payload, based on the stored version unless another is given."""
    version = send_request(server, f"episodes/{index}").headers["ETag"] if version is None else version
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    headers = {"Content_Type": "application/json", "If_Match": version, **headers}
    return send_request(server, f"episodes/{index}", "PUT", body, **headers)


def stored_annotations(folder: Path) -> list[tuple[tuple[Subtask, ...], bool | None]]:
    return [(meta.subtasks, meta.success) for meta in open_dataset(folder).meta]


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_frames_match_their_requested_index(server):
    for frame in [0, 15, 16, 17, 59, 3, 2, 31, 32, 47]:
        for view, first_number in enumerate(VIEWS.values()):
            for index in (0, 1):
                response = send_request(server, f"frames/{index}/{view}/{frame}")
                assert response.status == 200 and response.headers["Content-Type"] == "image/jpeg"
                image = np.asarray(Image.open(io.BytesIO(response.body)))
                assert read_number(image) == first_number + 100 * index + frame
                assert image.shape[:2] == ((48, 96) if view == 0 else (72, 120))


def test_overview_and_stored_annotations(server):
    overview = send_request(server, "dataset").json
    assert set(overview["views"]) == set(VIEWS) and [e["name"] for e in overview["episodes"]] == ["cup_0", "cup_1"]
    assert [e["subtasks"] for e in overview["episodes"]] == [["reach", "grasp", "lift"], []]
    assert overview["episodes"][0]["length"] == LENGTH and overview["episodes"][0]["fps"] == 10
    first = send_request(server, "episodes/0").json
    assert [(s["name"], s["start"], s["end"]) for s in first["subtasks"]] == [
        tuple(s.values()) for s in SUBTASK_ENTRIES
    ]
    assert first["success"] is None and send_request(server, "episodes/1").json == {"subtasks": [], "success": None}


def test_saved_annotation_is_stored_exactly(server, folder):
    subtasks = [{"name": "reach", "start": 2, "end": 21}, {"name": "held “so”", "start": 30, "end": 60}]
    response = save(server, {"subtasks": subtasks, "success": False})
    assert response.status == 200 and response.json == {"subtasks": subtasks, "success": False}
    assert stored_annotations(folder) == [(tuple(Subtask(**subtask) for subtask in subtasks), False), ((), None)]
    assert save(server, VALID, 1, version=send_request(server, "episodes/1").headers["ETag"]).status == 200
    assert [e["success"] for e in send_request(server, "dataset").json["episodes"]] == [False, True]
    assert list(server.session.saved_annotations) == [0, 1]


def test_proposals_are_not_stored(server, folder):
    before = files_of(folder)
    subtasks = send_request(server, "episodes/1/proposal").json["subtasks"]
    assert subtasks[0]["start"] == 0 and subtasks[-1]["end"] == LENGTH and files_of(folder) == before


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff", "not valid JSON"),
        ([], '{"subtasks": [...], "success"'),
        ({"subtasks": []}, '{"subtasks": [...], "success"'),
        ({**VALID, "file": "/etc/passwd"}, '{"subtasks": [...], "success"'),
        ({**VALID, "success": 1}, "success is 1; true, false or null"),
        ({**VALID, "success": "yes"}, "success is 'yes'; true, false or null"),
        ({**VALID, "subtasks": [{"name": "a", "start": 3, "end": 3}]}, "subtask 'a' must have 0 <= start < end"),
        ({**VALID, "subtasks": [{"name": "a", "start": -1, "end": 3}]}, "subtask 'a' must have 0 <= start < end"),
        (
            {**VALID, "subtasks": [{"name": "a", "start": 0, "end": LENGTH + 1}]},
            f"ends at frame {LENGTH + 1}, the videos",
        ),
        ({**VALID, "subtasks": [{"name": "a", "start": 0, "end": 2.0}]}, "end is 2.0; a frame index was expected"),
        ({**VALID, "subtasks": [{"name": "a", "start": True, "end": 2}]}, "start is True; a frame index"),
        ({**VALID, "subtasks": [{"name": "a", "start": 0}]}, 'subtask 1: {"name", "start", "end"} was expected'),
        ({**VALID, "subtasks": [{"name": " ", "start": 0, "end": 2}]}, "subtask 1 is named ' '; a line of text"),
        ({**VALID, "subtasks": [{"name": "a\nb", "start": 0, "end": 2}]}, "subtask 1 is named 'a\\nb'; a line of text"),
        (b'{"subtasks": [{"name": "\\ud800", "start": 0, "end": 2}], "success": null}', "a line of text was expected"),
        (
            {**VALID, "subtasks": [{"name": "a", "start": 0, "end": 9}, {"name": "b", "start": 8, "end": 12}]},
            "subtask 'b' starts at 8, before 'a' ends",
        ),
    ],
)
def test_invalid_annotation_is_rejected(server, folder, payload, message):
    before = files_of(folder)
    response = save(server, payload)
    assert response.status == 422 and message in response.json["error"] and files_of(folder) == before


def test_conflicting_save_is_rejected(server, folder):
    old = send_request(server, "episodes/0").headers["ETag"]
    assert save(server, VALID, version=old).status == 200
    late = save(server, {**VALID, "success": False}, version=old)
    assert late.status == 412 and "saved by another client since it was loaded" in late.json["error"]
    assert stored_annotations(folder)[0][1] is True
    # Saving what is already stored succeeds, for instance after a lost response.
    assert save(server, VALID, version=old).status == 200
    # The same holds if another program has written the file.
    new = send_request(server, "episodes/0").headers["ETag"]
    (folder / "cup_0" / "success.json").write_text('{"success": false}')
    assert save(server, {**VALID, "success": None}, version=new).status == 412
    assert send_request(server, "episodes/0", "PUT", b"{}", Content_Type="application/json").status == 428


def test_exactly_one_of_concurrent_saves_is_stored(server, folder):
    """Of several saves based on one version, exactly one is stored."""
    version = send_request(server, "episodes/0").headers["ETag"]
    payloads = [{"subtasks": [{"name": f"step {i}", "start": 0, "end": 9}], "success": None} for i in range(12)]
    responses: list[Response] = []
    threads = [
        threading.Thread(target=lambda t=t: responses.append(save(server, t, version=version))) for t in payloads
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(response.status for response in responses) == [200, *[412] * 11]
    (saved,) = (response.json for response in responses if response.status == 200)
    assert send_request(server, "episodes/0").json == saved


ROUTES = [("GET", path) for path in ("", *AnnotationHandler.page_files, "dataset", "episodes/0")]
ROUTES += [("GET", "episodes/1/proposal"), ("GET", "frames/0/0/0"), ("PUT", "episodes/0"), ("GET", "nothing")]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_checks_token_host_and_origin(server, folder, method, path):
    before = files_of(folder)
    body = json.dumps(VALID).encode() if method == "PUT" else None
    version = send_request(server, "episodes/0").headers["ETag"]
    valid_headers = {"Content_Type": "application/json", "If_Match": version}
    origin = f"http://127.0.0.1:{server.server_port}"
    invalid: list[tuple[str | None, dict[str, str]]] = [
        ("", {}),
        (server.token[:-1], {}),
        (server.token + "a", {}),
        (server.token.swapcase(), {}),
        (None, {"Origin": "http://evil.example"}),
        (None, {"Origin": "null"}),
        (None, {"Origin": origin.replace("http:", "https:")}),
        (None, {"Origin": origin + "0"}),
        (None, {"Host": "evil.example"}),
        (None, {"Host": f"evil.example:{server.server_port}"}),
        (None, {"Host": "127.0.0.1"}),
    ]
    for token, headers in invalid:
        response = send_request(server, path, method, body, token, **valid_headers, **headers)
        assert response.status == 403 and set(response.json) == {"error"}
        assert server.token not in response.body.decode() and files_of(folder) == before
    assert send_request(server, path, method, body, **valid_headers, Origin=origin).status == (
        404 if path == "nothing" else 200
    )


def test_security_headers_forbid_external_resources(server):
    for method, path in ROUTES:
        response = send_request(server, path, method)
        policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert {source for sources in policy.values() for source in sources.split()} == {"'none'", "'self'", "data:"}
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert (
            response.headers["Referrer-Policy"] == "no-referrer"
            and "Access-Control-Allow-Origin" not in response.headers
        )
        assert b"http:" not in response.body and b"https:" not in response.body


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
def test_invalid_paths_open_no_file(server, folder, path, monkeypatch):
    opened_paths: list[str] = []
    original_open = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, *a, **k: (opened_paths.append(str(self)), original_open(self, *a, **k))[1]
    )
    response = send_request(server, path)
    assert response.status == 404 and b"root:" not in response.body and opened_paths == []
    assert send_request(server, path, "PUT", b"{}", If_Match="x", Content_Type="application/json").status in (404, 405)


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_rejected_with_json(server, method):
    response = send_request(server, "episodes/0", method, b"{}")
    assert response.status == 501 and set(response.json) == {"error"}


def send_raw(server: AnnotationServer, sent: bytes) -> bytes:
    """Send bytes on a connection and return the response."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def request_head(server: AnnotationServer, *lines: str) -> bytes:
    begin = (f"PUT /{server.token}/episodes/0 HTTP/1.1", f"Host: 127.0.0.1:{server.server_port}", 'If-Match: "x"')
    return "\r\n".join([*begin, "Content-Type: application/json", *lines, "", ""]).encode()


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((f"Content-Length: {MAX_BODY_BYTES + 1}",), b"413"),
        (("Content-Length: " + "9" * 15,), b"413"),
        (("Content-Length: " + "9" * 40,), b"411"),
        (("Content-Length: -1",), b"411"),
        (("Content-Length: 2", "Content-Length: 3"), b"411"),
        (("Transfer-Encoding: chunked",), b"411"),
        (("Content-Length: 2", "Transfer-Encoding: chunked"), b"411"),
        ((), b"411"),
    ],
)
def test_body_without_valid_length_is_rejected_unread(server, lines, status):
    response = send_raw(server, request_head(server, *lines))
    assert response.startswith(b"HTTP/1.1 " + status) and b"Connection: close" in response and b'"error"' in response


def test_body_of_maximum_size_is_accepted(server, folder):
    """A body of exactly the maximum size is accepted."""
    body = json.dumps(VALID).encode()
    assert (
        save(server, body + b" " * (MAX_BODY_BYTES - len(body))).status == 200
        and stored_annotations(folder)[0][1] is True
    )


def test_unread_body_is_not_parsed_as_the_next_request(server):
    for path in ("dataset", "nothing"):
        inner = f"GET /{server.token}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\n"
        outer = f"{inner}Content-Length: {len(inner) + 2}\r\n\r\n"
        assert send_raw(server, f"{outer}{inner}\r\n".encode()).count(b"HTTP/1.1 ") == 1


MALFORMED_REQUESTS = (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000)


@pytest.mark.parametrize("sent", MALFORMED_REQUESTS)
def test_malformed_http_is_rejected(server, sent):
    assert b'"error"' in send_raw(server, sent)
    assert send_request(server, "dataset").status == 200


def test_write_error_is_reported_and_can_be_retried(server, folder, monkeypatch):
    def raise_disk_full(self: Path, *args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", raise_disk_full)
        response = save(server, VALID)
    assert response.status == 500 and "No space left" in response.json["error"]
    assert stored_annotations(folder)[0][1] is None and server.session.saved_annotations == {}
    assert save(server, VALID).status == 200 and stored_annotations(folder)[0][1] is True


def test_server_listens_on_loopback_only(server):
    assert server.server_address[0] == "127.0.0.1" and server.url.startswith("http://127.0.0.1:")
    assert len(server.token) >= 32
    with pytest.raises(UserError, match=f"port {server.server_port} of 127.0.0.1 cannot be used"):
        AnnotationServer(server.session, server.server_port)
    with pytest.raises(UserError, match="port 70000"):
        AnnotationServer(server.session, 70_000)
