"""The pages for a browser, which load and reach nothing but this service."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embodied_rm import report
from embodied_rm.report.served import KINDS, SHARED, guards
from embodied_rm.serve import page
from embodied_rm.serve.overview import overview
from embodied_rm.serve.service import RewardService

GUARDS = {"Cache-Control": "no-store", **guards("media-src blob:")}
"""A film is shown from the browser's own memory (`blob:`): it never leaves it as a film."""
OURS = ("page.css", "page.js", "film.js", "session.js", "curve.js", "chart.js", "live.js")
PARTS = {**dict.fromkeys(OURS, page.__name__), **dict.fromkeys(SHARED, report.__name__)}
"""What the pages are made of -> the package that it lies in."""


def looking(service: RewardService) -> list[Route]:
    """The paths that are for people."""

    async def judge(request: Request) -> Response:
        return part("page.html", page.__name__)

    async def live(request: Request) -> Response:
        return part("live.html", page.__name__)

    async def part_of_page(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in PARTS:
            raise HTTPException(404)
        return part(name, PARTS[name])

    async def sessions(request: Request) -> Response:
        return Response(overview(service.sessions), media_type="application/json", headers=GUARDS)

    return [
        Route("/", judge),
        Route("/live", live),
        Route("/page/{name}", part_of_page),
        Route("/v1/sessions", sessions),
    ]


def part(name: str, package: str) -> Response:
    """A file of a page."""
    content = files(package).joinpath(name).read_bytes()
    return Response(content, media_type=KINDS[name.rpartition(".")[2]], headers=GUARDS)
