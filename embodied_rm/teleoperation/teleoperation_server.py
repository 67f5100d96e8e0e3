"""The server of the page on which a person acts.

    GET /<token>/steps/<n>    the number and the state of the last step, once its number is above n
    GET /<token>/views/<n>    the images of the last step
    PUT /<token>/command      the action of the person

What all local pages have: `embodied_rm.annotate.local_page`.
"""

import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from embodied_rm import teleoperation
from embodied_rm.annotate.local_page import (
    HttpReply,
    HttpRequestError,
    LocalPageHandler,
    LocalPageServer,
    json_reply,
    list_page_files,
)
from embodied_rm.errors import UserError
from embodied_rm.teleoperation.teleoperation_session import TeleoperationSession

PAGE = "teleoperate.html"
STEP_ROUTE, VIEWS_ROUTE = re.compile(r"steps/([0-9]{1,9})"), re.compile(r"views/[0-9]{1,9}")
STEP_TIMEOUT_S = 2.0  # time after which the page asks again for the next step


class TeleoperationServer(LocalPageServer):
    """Serves a session until it is shut down."""

    def __init__(self, session: TeleoperationSession, port: int) -> None:
        """Bind the port (0: any free port). Raises `UserError` if it is in use."""
        super().__init__(TeleoperationHandler, port)
        self.session = session


class TeleoperationHandler(LocalPageHandler):
    """One connection."""

    page = PAGE
    page_files = list_page_files(teleoperation.__name__, PAGE, "teleoperate.css", "teleoperate.js")
    server: TeleoperationServer

    def read(self, route: str) -> HttpReply | None:
        """Return the last step, or its images."""
        if match := STEP_ROUTE.fullmatch(route):
            return json_reply(HTTPStatus.OK, self.server.session.wait_for_step(int(match[1]), STEP_TIMEOUT_S))
        if VIEWS_ROUTE.fullmatch(route):
            return HttpReply(status=HTTPStatus.OK, body=self.server.session.image(), content_type="image/jpeg")
        return None

    def store(self, route: str) -> HttpReply:
        """Store a command."""
        if route != "command":
            raise HttpRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only a command can be sent")
        self.server.session.command(parse_command(self.read_json(), self.server.session.num_motions + 1))
        return json_reply(HTTPStatus.OK, {})


def parse_command(payload: Any, count: int) -> list[float]:
    """Parse the action in the content of a request; raise `UserError` if it is not valid."""
    action = payload.get("action") if isinstance(payload, dict) and len(payload) == 1 else None
    numbers = action if isinstance(action, list) else []
    if len(numbers) != count or not all(type(value) in (int, float) and math.isfinite(value) for value in numbers):
        raise UserError(f'{{"action": {count} numbers}} was expected')
    return [min(max(float(value), -1.0), 1.0) for value in numbers]


@contextmanager
def serve_in_background(session: TeleoperationSession, port: int) -> Iterator[str]:
    """Serve the page from a thread, and yield its address."""
    with TeleoperationServer(session, port) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()
