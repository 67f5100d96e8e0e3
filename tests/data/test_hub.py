"""Datasets of a hub served on this machine: downloaded once, and only the files of a dataset."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sprites import episode

from embodied_rm.data.hub import download_dataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import DataError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves one dataset, `people/carrying`, with the protocol of the hub."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        self.downloads: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class HubHandler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._reply(body=False)

    def do_GET(self) -> None:
        self._reply(body=True)

    def _reply(self, body: bool) -> None:
        path = self.path.split("?")[0]
        files, prefix = self.server.files, f"/datasets/people/carrying/resolve/{COMMIT}/"
        if path.startswith("/api/datasets/people/carrying/"):
            description = {"id": "people/carrying", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
            tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in files]
            self._send(200, json.dumps(tree if "/tree/" in path else description).encode(), body)
        elif path.startswith(prefix) and path.removeprefix(prefix) in files:
            name = path.removeprefix(prefix)
            self.server.downloads[name] += body
            self._send(200, files[name].read_bytes(), body)
        else:
            self._send(404, b"{}", body, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})

    def _send(self, status: int, content: bytes, body: bool, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        tag = f'"{hashlib.sha1(content).hexdigest()}"'
        all_headers = {"Content-Length": str(len(content)), "ETag": tag, "X-Repo-Commit": COMMIT, **(headers or {})}
        for key, value in all_headers.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with DatasetWriter(tmp_path / "dataset") as writer:
        for number in range(3):
            writer.add(episode(number, length=9))
    (tmp_path / "dataset" / "README.md").write_text("what it is")
    (tmp_path / "dataset" / "loader.py").write_text("raise SystemExit('code of a dataset was run')")
    with Hub(tmp_path / "dataset") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def inspect(name: str, hub: Hub, home: Path) -> subprocess.CompletedProcess[str]:
    """Run `embodied-rm inspect` on a dataset of that hub."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    env = {**inherited, "HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    words = [sys.executable, "-m", "embodied_rm", "inspect", f"data={name}"]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, cwd=home.parent)


def test_dataset_is_downloaded_once(hub: Hub, tmp_path: Path) -> None:
    for _ in range(2):
        result = inspect("hub:people/carrying", hub, tmp_path / "home")
        assert result.returncode == 0, result.stderr
        assert "3" in result.stdout
        assert set(hub.downloads) == {name for name in hub.files if name not in ("README.md", "loader.py")}
        assert set(hub.downloads.values()) == {1}


def test_download_error_includes_the_reply_of_the_hub(hub: Hub, tmp_path: Path) -> None:
    result = inspect("hub:people/dancing", hub, tmp_path / "home")
    assert result.returncode == 2 and "hub:people/dancing: cannot be downloaded" in result.stderr
    assert "Repository not found" in result.stderr or "404" in result.stderr
    hub.server_close()
    result = inspect("hub:people/carrying@v3.0", hub, tmp_path / "home")
    assert result.returncode == 2 and "cannot be downloaded" in result.stderr


@pytest.mark.parametrize("name", ["hub:carrying", "hub:../x", "hub:a/..", "hub:a/b@../../c", "hub:a/b/c", "hub:/etc/x"])
def test_invalid_name_is_rejected_without_a_request(name: str) -> None:
    with pytest.raises(DataError, match="a dataset of the hub is named hub:owner/name"):
        download_dataset(Path(name))
