"""The server behind the page: this machine only, one token, and nothing of a request but numbers reaches the data.

    GET /<token>/                             the page; what it is made of lies beside it
    GET /<token>/dataset                      what there is
    GET /<token>/episodes/<i>                 what is stored of an episode; its ETag is the version
    PUT /<token>/episodes/<i>                 store this instead (If-Match: the version that it was made of)
    GET /<token>/episodes/<i>/proposal        steps proposed for it
    GET /<token>/frames/<i>/<view>/<frame>    a picture

Whoever knows the token may write, so it is long and random. Pages elsewhere are refused by `Origin`, and by `Host`
those that made a name of theirs point here; the page itself can load and reach nothing but this server.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from embodied_rm import annotate, report
from embodied_rm.annotate.session import OutdatedError, Session
from embodied_rm.annotate.wire import annotation_from
from embodied_rm.errors import UserError
from embodied_rm.report.served import KINDS, SHARED, guards

LOOPBACK = "127.0.0.1"
MAX_BODY = 1 << 20
"""Bytes of a request: some ten thousand steps."""
PATIENCE_S = 60.0
"""How long a connection may say nothing."""
GUARDS = guards()
PAGE = {
    "annotate.html": annotate.__name__,
    "annotate.css": annotate.__name__,
    "annotate.js": annotate.__name__,
    "film.js": annotate.__name__,
    "steps.js": annotate.__name__,
    **dict.fromkeys(SHARED, report.__name__),
}
"""What the page is made of -> the package that it lies in."""
EPISODE, PROPOSAL = re.compile(r"episodes/([0-9]{1,9})"), re.compile(r"episodes/([0-9]{1,9})/proposal")
FRAME = re.compile(r"frames/([0-9]{1,9})/([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is answered."""

    status: HTTPStatus
    body: bytes
    kind: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class RefusedError(Exception):
    """A request that is not served, and why in a sentence."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class AnnotationServer(ThreadingHTTPServer):
    """Serves a session until it is shut down."""

    daemon_threads = True
    """A browser that keeps a connection open must not keep the program from its end."""

    def __init__(self, session: Session, port: int) -> None:
        """`port` 0: any that is free. Raises `UserError` where it is taken."""
        try:
            super().__init__((LOOPBACK, port), Handler)
        except (OSError, OverflowError) as error:
            raise UserError(
                f"port {port} of {LOOPBACK} cannot be used ({error}); port=0 finds one that is free"
            ) from None
        self.session = session
        self.token = secrets.token_urlsafe(24)
        self.hosts = tuple(f"{name}:{self.server_port}" for name in (LOOPBACK, "localhost"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show the traceback of a fault of ours; that a browser has left is none."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{self.hosts[0]}/{self.token}/"


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: AnnotationServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "embodied-rm", ""
    timeout = PATIENCE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a question."""
        self._serve()

    def do_PUT(self) -> None:
        """Store something."""
        self._serve()

    def _serve(self) -> None:
        try:
            reply = self._reply()
        except RefusedError as refused:
            reply = told(refused.status, {"error": str(refused)})
        except OutdatedError as error:
            reply = told(HTTPStatus.PRECONDITION_FAILED, {"error": str(error)})
        except UserError as error:
            reply = told(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)})
        except ConnectionError:
            raise  # nobody is left to answer
        except OSError as error:
            reply = told(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
        self._send(reply)

    def _reply(self) -> Reply:
        self._refuse_strangers()
        route = self.path.removeprefix(f"/{self.server.token}/")
        if self.command == "PUT":
            return self._save(route)
        if (name := route or "annotate.html") in PAGE:
            body = files(PAGE[name]).joinpath(name).read_bytes()
            return Reply(status=HTTPStatus.OK, body=body, kind=f"{KINDS[name.partition('.')[2]]}; charset=utf-8")
        session = self.server.session
        if route == "dataset":
            return told(HTTPStatus.OK, session.overview())
        if found := EPISODE.fullmatch(route):
            annotation = session.stored(self._episode(found[1]))
            return told(HTTPStatus.OK, asdict(annotation), ETag=f'"{annotation.version}"')
        if found := PROPOSAL.fullmatch(route):
            steps = session.proposal(self._episode(found[1]))
            return told(HTTPStatus.OK, {"steps": [asdict(step) for step in steps]})
        if found := FRAME.fullmatch(route):
            return self._picture(*map(int, found.groups()))
        raise RefusedError(HTTPStatus.NOT_FOUND, "there is nothing of that name")

    def _refuse_strangers(self) -> None:
        """Raises `RefusedError` for requests that are not made by the page, before anything of them is read."""
        hosts = self.server.hosts
        if self.headers.get_all("Host") not in [[host] for host in hosts]:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"this is {hosts[0]} and answers to no other name")
        if not set(self.headers.get_all("Origin", [])) <= {f"http://{host}" for host in hosts}:
            raise RefusedError(HTTPStatus.FORBIDDEN, "pages of another origin may not use this server")
        token = self.path.split("/")[1] if self.path.count("/") > 1 else ""
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise RefusedError(HTTPStatus.FORBIDDEN, "the address lacks the token; use the one that was printed")

    def _episode(self, number: str) -> int:
        index = int(number)
        if index >= len(self.server.session.source):
            raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no episode {index}")
        return index

    def _picture(self, episode: int, view: int, frame: int) -> Reply:
        source = self.server.session.source
        index = self._episode(str(episode))
        if view >= len(source.views) or frame >= source.meta[index].length:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"{source.meta[index].name} has no frame {frame} of view {view}")
        body = self.server.session.pictures.jpeg(index, view, frame)
        kept = {"Cache-Control": "private, max-age=86400, immutable"}
        return Reply(status=HTTPStatus.OK, body=body, kind="image/jpeg", headers=kept)

    def _save(self, route: str) -> Reply:
        found = EPISODE.fullmatch(route)
        if found is None:
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "only episodes can be stored")
        index = self._episode(found[1])
        version = (self.headers.get("If-Match") or "").strip('"')
        if not version:
            raise RefusedError(HTTPStatus.PRECONDITION_REQUIRED, "If-Match must say which version was changed")
        if self.headers.get_content_type() != "application/json":
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "JSON was expected")
        self.server.session.save(index, annotation_from(self._body()), version)
        annotation = self.server.session.stored(index)
        return told(HTTPStatus.OK, asdict(annotation), ETag=f'"{annotation.version}"')

    def _body(self) -> bytes:
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,18}", lengths[0]) or "Transfer-Encoding" in self.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "Content-Length must say how long the request is")
        if int(lengths[0]) > MAX_BODY:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request may have {MAX_BODY} bytes at most")
        return self.rfile.read(int(lengths[0]))

    def _send(self, reply: Reply) -> None:
        # A body that nobody has read must not be taken for the next request.
        refused = reply.status >= HTTPStatus.BAD_REQUEST
        unread = refused or (
            self.command == "GET"
            and not {"content-length", "transfer-encoding"}.isdisjoint(name.lower() for name in self.headers)
        )
        self.close_connection = self.close_connection or unread
        self.send_response(reply.status)
        said = {"Cache-Control": "no-store", "Content-Type": reply.kind, **GUARDS, **reply.headers}
        said["Content-Length"] = str(len(reply.body))
        if self.close_connection:
            said["Connection"] = "close"
        for name, value in said.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses by itself: requests that are no HTTP, or of another method."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._send(told(status, {"error": message or status.phrase}))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing: only the command line speaks."""


def told(status: HTTPStatus, value: Mapping[str, Any], **headers: str) -> Reply:
    """JSON as a reply."""
    return Reply(status=status, body=json.dumps(value, allow_nan=False).encode(), headers=headers)
