"""A hub on this machine, with the HTTP interface of the Hugging Face Hub: repositories, commits, branches, uploads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from server_threads import serve_in_thread

MAIN, TOKEN = "main", "hf_token_of_the_tests"
REPOSITORY_PATH = r"/api/(?P<kind>\w+)/(?P<repo_id>[\w.-]+/[\w.-]+)"
RESOLVE_PATH = r"/((?P<kind>datasets)/)?(?P<repo_id>[\w.-]+/[\w.-]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)"


@dataclass
class Repository:
    """Commits, each a complete folder, and the branches and tags that point to them."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes], revision: str = MAIN) -> str:
        """Let a branch point to a new commit with these files; return its name."""
        digests = [hashlib.sha1(content).hexdigest() for content in files.values()]
        name = hashlib.sha1(repr((len(self.commits), sorted(files), digests)).encode()).hexdigest()
        self.commits[name] = dict(files)
        self.references[revision] = name
        return name

    def find(self, revision: str) -> str | None:
        """Return the commit that a revision names."""
        name = self.references.get(revision, revision)
        return name if name in self.commits else None


class HubServer(ThreadingHTTPServer):
    """Serves repositories to everyone, and accepts changes with the token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.uploads: dict[str, bytes] = {}
        """SHA-256 -> content of a large file."""
        self.downloads: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, kind: str, repo_id: str, folder: Path) -> Repository:
        """Create a repository with the files of a folder."""
        repository = self.repositories[kind, repo_id] = Repository()
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        repository.commit({str(path.relative_to(folder)): path.read_bytes() for path in paths})
        return repository


class HubHandler(BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self._read(with_body=False)

    def do_GET(self) -> None:
        self._read(with_body=True)

    def _read(self, with_body: bool) -> None:
        path = self.path.split("?")[0].replace("%2F", "/")
        if match := re.fullmatch(RESOLVE_PATH, path):
            self._resolve(match, with_body)
        elif match := re.fullmatch(REPOSITORY_PATH + r"(/(revision|tree)/(?P<revision>.+?))?/?", path):
            self._describe(match, tree="/tree/" in path)
        else:
            self._reject(404, "EntryNotFound", "Entry not found")

    def _open(self, match: re.Match[str], kind: str, revision: str) -> tuple[Repository, str] | None:
        """Return the repository and the commit, or reply that there is none."""
        repository = self.server.repositories.get((kind, match["repo_id"]))
        if repository is None:
            self._reject(404, "RepoNotFound", "Repository not found")
            return None
        commit = repository.find(revision)
        if commit is None:
            self._reject(404, "RevisionNotFound", "Invalid rev id")
            return None
        return repository, commit

    def _resolve(self, match: re.Match[str], with_body: bool) -> None:
        opened = self._open(match, match["kind"] or "models", match["revision"])
        if opened is None:
            return
        repository, commit = opened
        content = repository.commits[commit].get(match["name"])
        if content is None:
            self._reject(404, "EntryNotFound", "Entry not found")
            return
        self.server.downloads[match["name"]] += with_body
        headers = {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": commit}
        self._send(200, content, headers)

    def _describe(self, match: re.Match[str], tree: bool) -> None:
        opened = self._open(match, match["kind"], match["revision"] or MAIN)
        if opened is None:
            return
        files = opened[0].commits[opened[1]]
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            for name, content in files.items()
        ]
        siblings = [{"rfilename": name} for name in files]
        self._send_json(entries if tree else {"id": match["repo_id"], "sha": opened[1], "siblings": siblings})

    def do_POST(self) -> None:
        body, path = self._body(), self.path.split("?")[0].replace("%2F", "/")
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reject(401, "", "Invalid username or password.")
        elif path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._validate(json.loads(body)["content"])
        elif path.endswith(".git/info/lfs/objects/batch"):
            self._list_uploads(json.loads(body)["objects"])
        elif match := re.fullmatch(REPOSITORY_PATH + "/(?P<action>preupload|commit|branch)/(?P<revision>.+)", path):
            repository = self.server.repositories[match["kind"], match["repo_id"]]
            getattr(self, f"_{match['action']}")(repository, match, body)

    def do_PUT(self) -> None:
        content = self._body()
        self.server.uploads[hashlib.sha256(content).hexdigest()] = content
        self._send(200, b"")

    def _create(self, request: dict[str, Any]) -> None:
        key = ("models", f"{request['organization']}/{request['name']}")
        url = {"url": f"{self.server.url}/{key[1]}"}
        if key in self.server.repositories:
            self._send_json({"error": "You already created this model repo", **url}, 409)
            return
        private = request.get("visibility") == "private"
        self.server.repositories[key] = Repository(private=private)
        self.server.repositories[key].commit({".gitattributes": b""})
        self._send_json(url)

    def _validate(self, card: str) -> None:
        match = re.match(r"---\n(.*?)\n---\n", card, flags=re.DOTALL)
        if match is None or not isinstance(yaml.safe_load(match[1]), dict):
            self._send_json({"errors": [{"message": "no front matter"}], "warnings": []}, 400)
            return
        self._send_json({"errors": [], "warnings": []})

    def _preupload(self, repository: Repository, match: re.Match[str], body: bytes) -> None:
        modes = [
            {**file, "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular", "shouldIgnore": False}
            for file in json.loads(body)["files"]
        ]
        self._send_json({"files": modes})

    def _list_uploads(self, objects: list[dict[str, Any]]) -> None:
        actions = [
            {**item, "actions": {"upload": {"href": f"{self.server.url}/lfs/{item['oid']}"}}} for item in objects
        ]
        self._send_json({"transfer": "basic", "objects": actions})

    def _commit(self, repository: Repository, match: re.Match[str], body: bytes) -> None:
        files = dict(repository.commits[repository.references[match["revision"]]])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.uploads[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = repository.commit(files, match["revision"])
        url = f"{self.server.url}/{match['repo_id']}/commit/{commit}"
        self._send_json({"commitUrl": url, "commitOid": commit})

    def _branch(self, repository: Repository, match: re.Match[str], body: bytes) -> None:
        if match["revision"] in repository.references:
            self._send_json({"error": "Reference already exists"}, 409)
            return
        repository.references[match["revision"]] = repository.references[MAIN]
        self._send_json({})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _reject(self, status: int, code: str, message: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": message} if code else {})

    def _send_json(self, value: object, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        return


@contextmanager
def serve_hub() -> Iterator[HubServer]:
    """Serve an empty hub."""
    server = HubServer()
    with serve_in_thread(server):
        yield server


def hub_environment(url: str, home: Path, token: str = TOKEN) -> dict[str, str]:
    """Environment variables with which the hub's client uses that hub, an own cache, and plain HTTP uploads."""
    return {
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }


def use_hub(monkeypatch: pytest.MonkeyPatch, url: str, home: Path) -> None:
    """As `hub_environment`, in this process, where the client has already read its environment."""
    from huggingface_hub import constants

    for name, value in {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}",
        "HF_HOME": str(home),
        "HF_HUB_CACHE": str(home / "hub"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
