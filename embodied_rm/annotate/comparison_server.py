"""The server of the page on which a person compares clips.

    GET /<token>/comparisons        the views, and the choice of each pair
    GET /<token>/pairs/<i>          a pair: its instruction and its two clips
    PUT /<token>/pairs/<i>          store the choice of a pair

What all pages about episodes have: `embodied_rm.annotate.episode_page`.
"""

import re
from http import HTTPStatus
from typing import Any

from embodied_rm.annotate.comparison_session import ANSWERS, ComparisonSession
from embodied_rm.annotate.episode_page import EpisodePageHandler, EpisodePageServer, list_episode_page_files
from embodied_rm.annotate.local_page import HttpReply, HttpRequestError, json_reply, parse_index
from embodied_rm.errors import UserError

PAGE = "compare.html"
PAIR_ROUTE = re.compile(r"pairs/([0-9]{1,9})")


class ComparisonServer(EpisodePageServer):
    """Serves a session until it is shut down."""

    def __init__(self, session: ComparisonSession, port: int) -> None:
        """Bind the port (0: any free port). Raises `UserError` if it is in use."""
        super().__init__(session.source, ComparisonHandler, port)
        self.session = session


class ComparisonHandler(EpisodePageHandler):
    """One connection."""

    page, page_files = PAGE, list_episode_page_files(PAGE, "compare.css", "compare.js")
    server: ComparisonServer

    def read(self, route: str) -> HttpReply | None:
        """Return the overview, or a pair."""
        if route == "comparisons":
            return json_reply(HTTPStatus.OK, self.server.session.overview())
        if match := PAIR_ROUTE.fullmatch(route):
            return json_reply(HTTPStatus.OK, self.server.session.pair(self._pair_index(match[1])))
        return super().read(route)

    def store(self, route: str) -> HttpReply:
        """Store a choice."""
        match = PAIR_ROUTE.fullmatch(route)
        if match is None:
            raise HttpRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only pairs can be answered")
        index = self._pair_index(match[1])
        self.server.session.store(index, parse_choice(self.read_json()))
        return json_reply(HTTPStatus.OK, {"choice": self.server.session.choice(index)})

    def _pair_index(self, text: str) -> int:
        return parse_index(text, len(self.server.session.comparisons), "pair")


def parse_choice(payload: Any) -> str:
    """Parse the choice in the content of a request; raise `UserError` if it is not valid."""
    choice = payload.get("choice") if isinstance(payload, dict) and len(payload) == 1 else None
    if not isinstance(choice, str) or choice not in ANSWERS:
        raise UserError(f'{{"choice": one of {", ".join(ANSWERS)}}} was expected')
    return choice
