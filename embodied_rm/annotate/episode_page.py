"""Base of the local pages about recorded episodes.

    GET /<token>/frames/<i>/<view>/<frame>    an image

What all local pages have: `embodied_rm.annotate.local_page`.
"""

import re
from http import HTTPStatus

from embodied_rm import annotate
from embodied_rm.annotate.frame_cache import JpegFrameCache
from embodied_rm.annotate.local_page import (
    HttpReply,
    HttpRequestError,
    LocalPageHandler,
    LocalPageServer,
    list_page_files,
    parse_index,
)
from embodied_rm.data.source import EpisodeSource

FRAME_ROUTE = re.compile(r"frames/([0-9]{1,9})/([0-9]{1,9})/([0-9]{1,9})")


def list_episode_page_files(*names: str) -> dict[str, str]:
    """Return the files of a page with these own files: name -> the package that contains it."""
    return list_page_files(annotate.__name__, *names, "player.js")


class EpisodePageServer(LocalPageServer):
    """Serves a page about the episodes of a source until it is shut down."""

    def __init__(self, source: EpisodeSource, handler: type[LocalPageHandler], port: int) -> None:
        """Bind the port (0: any free port). Raises `UserError` if it is in use."""
        super().__init__(handler, port)
        self.source, self.frame_cache = source, JpegFrameCache(source)


class EpisodePageHandler(LocalPageHandler):
    """One connection."""

    server: EpisodePageServer

    def read(self, route: str) -> HttpReply | None:
        """Return an image; None for another route."""
        match = FRAME_ROUTE.fullmatch(route)
        return None if match is None else self._frame_reply(*map(int, match.groups()))

    def episode_index(self, text: str) -> int:
        """Return the index of an episode that a route names."""
        return parse_index(text, len(self.server.source), "episode")

    def _frame_reply(self, episode: int, view: int, frame: int) -> HttpReply:
        source = self.server.source
        index = self.episode_index(str(episode))
        if view >= len(source.views) or frame >= source.meta[index].length:
            text = f"{source.meta[index].name} has no frame {frame} of view {view}"
            raise HttpRequestError(HTTPStatus.NOT_FOUND, text)
        body = self.server.frame_cache.encode_frame(index, view, frame)
        cache_headers = {"Cache-Control": "private, max-age=86400, immutable"}
        return HttpReply(status=HTTPStatus.OK, body=body, content_type="image/jpeg", headers=cache_headers)
