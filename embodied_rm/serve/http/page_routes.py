"""Web pages of the service. They load nothing from other hosts."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from embodied_rm import report
from embodied_rm.report.web_headers import CONTENT_TYPES, SHARED_ASSETS, security_headers
from embodied_rm.serve import page
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.session_overview import encode_overview

SECURITY_HEADERS = {"Cache-Control": "no-store", **security_headers("media-src blob:")}
"""A video plays from browser memory (`blob:`) and is never uploaded."""
PAGE_ASSETS = ("page.css", "page.js", "video.js", "session.js", "curve.js", "chart.js", "live.js")
ASSET_PACKAGES = {**dict.fromkeys(PAGE_ASSETS, page.__name__), **dict.fromkeys(SHARED_ASSETS, report.__name__)}
"""Page asset -> package that contains it."""


def page_routes(service: RewardService) -> list[Route]:
    """Return the routes of the web pages."""

    async def scoring_page(request: Request) -> Response:
        return asset_response("page.html", page.__name__)

    async def overview_page(request: Request) -> Response:
        return asset_response("live.html", page.__name__)

    async def page_asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in ASSET_PACKAGES:
            raise HTTPException(404)
        return asset_response(name, ASSET_PACKAGES[name])

    async def sessions(request: Request) -> Response:
        return Response(encode_overview(service.sessions), media_type="application/json", headers=SECURITY_HEADERS)

    return [
        Route("/", scoring_page),
        Route("/live", overview_page),
        Route("/page/{name}", page_asset),
        Route("/v1/sessions", sessions),
    ]


def asset_response(name: str, package: str) -> Response:
    """Return an asset of a page."""
    content = files(package).joinpath(name).read_bytes()
    return Response(content, media_type=CONTENT_TYPES[name.rpartition(".")[2]], headers=SECURITY_HEADERS)
