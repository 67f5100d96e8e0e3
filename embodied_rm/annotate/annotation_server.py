"""The server of the annotation page.

    GET /<token>/dataset                      overview of the dataset
    GET /<token>/episodes/<i>                 stored annotation of an episode; its ETag is the version
    PUT /<token>/episodes/<i>                 store an annotation (If-Match: the version on which it is based)
    GET /<token>/episodes/<i>/proposal        proposed subtasks

What all pages about episodes have: `embodied_rm.annotate.episode_page`.
"""

import re
from dataclasses import asdict
from http import HTTPStatus

from embodied_rm.annotate.episode_page import EpisodePageHandler, EpisodePageServer, list_episode_page_files
from embodied_rm.annotate.local_page import HttpReply, HttpRequestError, json_reply
from embodied_rm.annotate.parsing import parse_annotation
from embodied_rm.annotate.session import AnnotationSession, VersionConflictError

PAGE = "annotate.html"
OWN_ASSETS = (PAGE, "annotate.css", "annotate.js", "episode_list.js", "subtasks.js", "timeline.js")
EPISODE_ROUTE, PROPOSAL_ROUTE = re.compile(r"episodes/([0-9]{1,9})"), re.compile(r"episodes/([0-9]{1,9})/proposal")


class AnnotationServer(EpisodePageServer):
    """Serves a session until it is shut down."""

    def __init__(self, session: AnnotationSession, port: int) -> None:
        """Bind the port (0: any free port). Raises `UserError` if it is in use."""
        super().__init__(session.source, AnnotationHandler, port)
        self.session = session


class AnnotationHandler(EpisodePageHandler):
    """One connection."""

    page, page_files = PAGE, list_episode_page_files(*OWN_ASSETS)
    server: AnnotationServer

    def read(self, route: str) -> HttpReply | None:
        """Return the overview, an annotation or a proposal."""
        session = self.server.session
        if route == "dataset":
            return json_reply(HTTPStatus.OK, session.overview())
        if match := EPISODE_ROUTE.fullmatch(route):
            return self._annotation_reply(self.episode_index(match[1]))
        if match := PROPOSAL_ROUTE.fullmatch(route):
            subtasks = session.propose_subtasks(self.episode_index(match[1]))
            return json_reply(HTTPStatus.OK, {"subtasks": [asdict(subtask) for subtask in subtasks]})
        return super().read(route)

    def store(self, route: str) -> HttpReply:
        """Store an annotation."""
        match = EPISODE_ROUTE.fullmatch(route)
        if match is None:
            raise HttpRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "only episodes can be stored")
        index = self.episode_index(match[1])
        version = (self.headers.get("If-Match") or "").strip('"')
        if not version:
            raise HttpRequestError(HTTPStatus.PRECONDITION_REQUIRED, "If-Match must say which version was changed")
        try:
            self.server.session.save(index, parse_annotation(self.read_json()), version)
        except VersionConflictError as error:
            raise HttpRequestError(HTTPStatus.PRECONDITION_FAILED, str(error)) from None
        return self._annotation_reply(index)

    def _annotation_reply(self, index: int) -> HttpReply:
        annotation = self.server.session.store.read(index)
        return json_reply(HTTPStatus.OK, asdict(annotation), ETag=f'"{annotation.version}"')
