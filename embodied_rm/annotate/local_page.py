"""Base of the local pages: a server that listens on this machine only and requires a secret token.

    GET /<token>/    the page; its files are next to it

The token authorizes writing, so it is long and random. `Origin` is checked to reject other pages, and `Host` to reject
DNS rebinding. The page itself can load and reach only this server. Requests select data by index, never by path.
"""

import hmac
import json
import re
import secrets
import sys
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, ClassVar

from embodied_rm import annotate, report
from embodied_rm.errors import UserError
from embodied_rm.report.render import CONTENT_TYPES, SHARED_ASSETS, security_headers

LOOPBACK_HOST = "127.0.0.1"
MAX_BODY_BYTES = 1 << 20  # maximum size of a request: about ten thousand subtasks
IDLE_TIMEOUT_S = 60.0  # time without traffic after which a connection is closed
SECURITY_HEADERS = security_headers()
COMMON_ASSETS = ("server_api.js", "page.css", "task_page.css")


def list_page_files(package: str, *names: str) -> dict[str, str]:
    """Return the files of a page: name -> the package that contains it; `names` are the page's own, of `package`."""
    own, common = dict.fromkeys(names, package), dict.fromkeys(COMMON_ASSETS, annotate.__name__)
    return {**own, **common, **dict.fromkeys(SHARED_ASSETS, report.__name__)}


@dataclass(frozen=True, kw_only=True)
class HttpReply:
    """A response."""

    status: HTTPStatus
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpRequestError(Exception):
    """A rejected request; the message is one sentence."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class LocalPageServer(ThreadingHTTPServer):
    """Serves a page until it is shut down."""

    daemon_threads = True  # an open browser connection must not prevent the program from exiting

    def __init__(self, handler: "type[LocalPageHandler]", port: int) -> None:
        """Bind the port (0: any free port). Raises `UserError` if it is in use."""
        try:
            super().__init__((LOOPBACK_HOST, port), handler)
        except (OSError, OverflowError) as error:
            text = f"port {port} of {LOOPBACK_HOST} cannot be used ({error}); port=0 finds one that is free"
            raise UserError(text) from None
        self.token = secrets.token_urlsafe(24)
        self.hosts = tuple(f"{name}:{self.server_port}" for name in (LOOPBACK_HOST, "localhost"))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a bug; a connection closed by the browser is none."""
        if not isinstance(sys.exception(), ConnectionError):
            sys.excepthook(*sys.exc_info())

    def serve_until_interrupt(self) -> None:
        """Serve until Ctrl-C."""
        with suppress(KeyboardInterrupt):
            self.serve_forever()

    @property
    def url(self) -> str:
        """URL of the page, with the token."""
        return f"http://{self.hosts[0]}/{self.token}/"


class LocalPageHandler(BaseHTTPRequestHandler):
    """One connection. A page adds what it reads and what it stores."""

    page: ClassVar[str]  # name of the HTML file
    page_files: ClassVar[Mapping[str, str]]  # file of the page -> the package that contains it
    server: LocalPageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "embodied-rm", ""
    timeout = IDLE_TIMEOUT_S
    disable_nagle_algorithm = True

    @abstractmethod
    def read(self, route: str) -> HttpReply | None:
        """Return what a route of the page holds; None: there is no such route."""

    @abstractmethod
    def store(self, route: str) -> HttpReply:
        """Store the body of a request, see `read_json`."""

    def do_GET(self) -> None:
        """Handle a request."""
        try:
            reply = self._route_request()
        except HttpRequestError as rejection:
            reply = json_reply(rejection.status, {"error": str(rejection)})
        except UserError as error:
            reply = json_reply(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error)})
        except ConnectionError:
            raise  # the connection is closed, no response can be sent
        except OSError as error:
            reply = json_reply(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
        self._send_reply(reply)

    do_PUT = do_GET  # noqa: N815

    def read_json(self) -> Any:
        """Return the content of a request, which must be JSON; raise `UserError` if it is not valid."""
        if self.headers.get_content_type() != "application/json":
            raise HttpRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "JSON was expected")
        lengths = self.headers.get_all("Content-Length", [])
        if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,18}", lengths[0]) or "Transfer-Encoding" in self.headers:
            raise HttpRequestError(HTTPStatus.LENGTH_REQUIRED, "Content-Length must say how long the request is")
        if int(lengths[0]) > MAX_BODY_BYTES:
            text = f"a request may have {MAX_BODY_BYTES} bytes at most"
            raise HttpRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        try:
            return json.loads(self.rfile.read(int(lengths[0])))
        except (ValueError, RecursionError):
            raise UserError("the request is not valid JSON") from None

    def _route_request(self) -> HttpReply:
        self._check_origin()
        route = self.path.removeprefix(f"/{self.server.token}/")
        if self.command == "PUT":
            return self.store(route)
        if (name := route or self.page) in self.page_files:
            body = files(self.page_files[name]).joinpath(name).read_bytes()
            content_type = CONTENT_TYPES[name.split(".")[1]]
            return HttpReply(status=HTTPStatus.OK, body=body, content_type=f"{content_type}; charset=utf-8")
        if reply := self.read(route):
            return reply
        raise HttpRequestError(HTTPStatus.NOT_FOUND, "not found")

    def _check_origin(self) -> None:
        """Reject requests that do not come from the page (host, origin, token), before reading their body."""
        hosts = self.server.hosts
        if self.headers.get_all("Host") not in [[host] for host in hosts]:
            raise HttpRequestError(HTTPStatus.FORBIDDEN, f"the Host header must be {hosts[0]}")
        if not set(self.headers.get_all("Origin", [])) <= {f"http://{host}" for host in hosts}:
            raise HttpRequestError(HTTPStatus.FORBIDDEN, "pages of another origin may not use this server")
        token = self.path.split("/")[1] if self.path.count("/") > 1 else ""
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            raise HttpRequestError(HTTPStatus.FORBIDDEN, "the URL lacks the token; use the printed URL")

    def _send_reply(self, reply: HttpReply) -> None:
        # An unread body must not be parsed as the next request.
        if reply.status >= HTTPStatus.BAD_REQUEST or (self.command == "GET" and self._has_body()):
            self.close_connection = True
        self.send_response(reply.status)
        headers = {"Cache-Control": "no-store", "Content-Type": reply.content_type, **SECURITY_HEADERS, **reply.headers}
        headers["Content-Length"] = str(len(reply.body))
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body)

    def _has_body(self) -> bool:
        return "Content-Length" in self.headers or "Transfer-Encoding" in self.headers

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Reply to requests that the base class rejects: malformed HTTP, or another method."""
        status = HTTPStatus(code)
        self.close_connection = True
        self._send_reply(json_reply(status, {"error": message or status.phrase}))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log nothing: only the command line writes output."""


def parse_index(text: str, count: int, name: str) -> int:
    """Return the index that a route has; raise `HttpRequestError` unless it is one of `count` things of that name."""
    index = int(text)
    if index >= count:
        raise HttpRequestError(HTTPStatus.NOT_FOUND, f"there is no {name} {index}")
    return index


def json_reply(status: HTTPStatus, value: Mapping[str, Any], **headers: str) -> HttpReply:
    """Return a JSON response."""
    return HttpReply(status=status, body=json.dumps(value, allow_nan=False).encode(), headers=headers)
