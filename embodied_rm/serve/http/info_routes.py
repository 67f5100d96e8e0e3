"""Routes for health, metadata, metrics and web pages. The pages load nothing from other hosts."""

from collections.abc import Callable
from importlib.resources import files
from typing import Any

from prometheus_client import generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from embodied_rm import report
from embodied_rm.report.render import CONTENT_TYPES, SHARED_ASSETS, security_headers
from embodied_rm.serve import page
from embodied_rm.serve.open_inference import describe_tensors
from embodied_rm.serve.request_errors import ErrorCode
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.session_overview import encode_overview

SERVER_METADATA = {"name": "embodied-rm", "version": "2", "extensions": ["binary_tensor_data", "embodied_rm_sessions"]}
SECURITY_HEADERS = {"Cache-Control": "no-store", **security_headers("media-src blob:")}
"""A video plays from browser memory (`blob:`) and is never uploaded."""
PAGE_ASSETS = ("page.css", "page.js", "video.js", "session.js", "curve.js", "chart.js", "live.js")
ASSET_PACKAGES = {**dict.fromkeys(PAGE_ASSETS, page.__name__), **dict.fromkeys(SHARED_ASSETS, report.__name__)}
"""Page asset -> package that contains it."""


def info_routes(service: RewardService) -> list[Route]:
    """Return the routes for health, metadata and metrics."""

    def json_route(path: str, describe: Callable[[Request], dict[str, Any]]) -> Route:
        async def respond(request: Request) -> Response:
            return JSONResponse(describe(request))

        return Route(path, respond)

    def model(request: Request) -> dict[str, Any]:
        service.check_model_name(request.path_params.get("name", service.metadata.name))
        return describe_model(service)

    async def ready(request: Request) -> Response:
        if "name" in request.path_params:
            service.check_model_name(request.path_params["name"])
        return JSONResponse({"ready": service.ready}, 200 if service.ready else ErrorCode.NOT_READY.http_status)

    async def health(request: Request) -> Response:  # path of Robometer's clients
        return JSONResponse({"status": "healthy"}) if service.ready else await ready(request)

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(service.metrics.registry), media_type="text/plain; version=0.0.4")

    return [
        json_route("/v2/health/live", lambda request: {"live": True}),
        Route("/v2/health/ready", ready),
        json_route("/v2", lambda request: SERVER_METADATA),
        json_route("/v2/models/{name}", model),
        Route("/v2/models/{name}/ready", ready),
        json_route("/v1/metadata", model),
        Route("/health", health),
        Route("/metrics", metrics),
    ]


def describe_model(service: RewardService) -> dict[str, Any]:
    """Return the model's metadata by the Open Inference Protocol, with the fields of reward models as parameters."""
    metadata = service.metadata
    return {
        "name": metadata.name,
        "versions": [metadata.version],
        "platform": "embodied_rm",
        **describe_tensors(),
        "parameters": {
            "views": None if metadata.views is None else list(metadata.views),
            "image_size": None if metadata.image_size is None else list(metadata.image_size),
            "predicts_success": metadata.predicts_success,
            "success_threshold": metadata.success_threshold,
            "supports_restore": metadata.supports_restore,
        },
    }


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
